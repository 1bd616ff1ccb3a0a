// Draws a Plotly figure and reports clicked steps. Plotly.react with a constant uirevision keeps zoom and pan while data change.
const loaded = async () => {
  while (!window.Plotly) await new Promise((done) => setTimeout(done, 25));
  return window.Plotly;
};

const themed = (layout, style) => {
  const ink = style.getPropertyValue("--st-text-color").trim() || "#444";
  const paper = style.getPropertyValue("--st-background-color").trim() || "#fff";
  const axis = {
    gridcolor: "rgba(128,138,155,0.18)", linecolor: "rgba(128,138,155,0.4)",
    tickcolor: "rgba(128,138,155,0.4)", spikecolor: "rgba(128,138,155,0.7)",
  };
  const out = { ...layout, paper_bgcolor: "rgba(0,0,0,0)", plot_bgcolor: "rgba(0,0,0,0)" };
  out.font = { color: ink, family: style.getPropertyValue("--st-font").trim() || "sans-serif", size: 11.5 };
  out.hoverlabel = { bgcolor: paper, bordercolor: "rgba(128,138,155,0.5)", font: { color: ink } };
  out.annotations = (layout.annotations || []).map((item) =>
    item.name === "on-paper" ? { ...item, bgcolor: paper, opacity: 0.82, borderpad: 0 } : item);
  for (const key of Object.keys(layout)) if (/^[xy]axis\d*$/.test(key)) out[key] = { ...axis, ...layout[key] };
  return out;
};

export default function ({ data, parentElement, setTriggerValue }) {
  const host = parentElement.querySelector(".echotrap-chart");
  const { data: traces, layout } = JSON.parse(data.figure);
  host.style.height = `${layout.height}px`;
  if (data.title) document.title = data.title;
  loaded().then(async (Plotly) => {
    const shown = themed({ ...layout, uirevision: data.revision }, getComputedStyle(host));
    const config = { responsive: true, displaylogo: false, scrollZoom: false, doubleClick: "reset",
      modeBarButtonsToRemove: ["select2d", "lasso2d", "autoScale2d"], plotlyServerURL: "" };
    await Plotly.react(host, traces, shown, config);
    host.dataset.ready = String(traces.length);
    host.removeAllListeners?.("plotly_click");
    host.on("plotly_click", ({ points: [point] }) => {
      const step = point.customdata ?? point.x;
      host.dataset.step = step;
      setTriggerValue("step", step);
    });
  });
}
