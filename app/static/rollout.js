// Shows turns of a rollout. Text goes into text nodes and nowhere else: whatever a policy wrote, it stays text.
const element = (name, className, text) => {
  const node = document.createElement(name);
  if (className) node.className = className;
  if (text !== undefined) node.append(document.createTextNode(text));
  return node;
};

export default function ({ data, parentElement, setTriggerValue }) {
  const host = parentElement.querySelector(".echotrap-rollout");
  const scrolled = host.dataset.raw === data.raw ? host.querySelector(".turns")?.scrollTop : 0;
  host.dataset.raw = data.raw;
  const bar = element("div", "bar");
  const copy = element("button", "copy", "copy");
  copy.type = "button";
  copy.onclick = async () => {
    await navigator.clipboard.writeText(data.raw);
    copy.textContent = "copied";
    setTimeout(() => (copy.textContent = "copy"), 1200);
  };
  bar.append(copy);
  const turns = element("div", "turns");
  turns.tabIndex = 0;
  turns.style.maxHeight = `${data.height}px`;
  for (const { role, pieces } of data.blocks) {
    const turn = element("div", "turn");
    turn.dataset.role = role;
    if (role) turn.append(element("div", "role", role));
    const body = element("div", "body");
    for (const [text, kind] of pieces) body.append(kind ? element("mark", kind, text) : document.createTextNode(text));
    turn.append(body);
    turns.append(turn);
  }
  turns.prepend(bar);
  host.replaceChildren(turns);
  turns.scrollTop = scrolled || 0;
  if (!data.keys) return undefined;
  const step = (event) => {
    if (event.target.closest("input, textarea, select, [contenteditable], [role=combobox], [role=grid], canvas")) return;
    if (event.key === "ArrowRight" || event.key === "j") setTriggerValue("move", 1);
    if (event.key === "ArrowLeft" || event.key === "k") setTriggerValue("move", -1);
  };
  document.addEventListener("keydown", step);
  return () => document.removeEventListener("keydown", step);
}
