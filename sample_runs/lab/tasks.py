"""The three toy tasks of the lab: a two-arm bandit, a calendar tool call, and a walk over a frozen lake.

Each task has a generator of prompts, a generator of *traces* (imperfect, diverse demonstrations on which
a tiny policy is pretrained), and a reward. The traces are made to be wrong in several ways on purpose: the
policy must start with entropy clearly above zero and with something left to learn.

Nothing here needs PyTorch. Every random choice goes through a ``random.Random`` handed in by the caller.
"""

from __future__ import annotations

import json
import random
import re
from dataclasses import dataclass

VARIANTS_PATTERN = re.compile(r"\[([^\]]*)\]")


def vary(rng: random.Random, template: str) -> str:
    """Replace each ``[a|b|c]`` in a template by one of its variants."""
    return VARIANTS_PATTERN.sub(lambda match: rng.choice(match.group(1).split("|")), template)


# --------------------------------------------------------------------------- bandit

STEADY_ARMS = {
    "Phoenix": ["ash", "rebirth", "slow fire", "patience"],
    "Teacher": ["chalk", "routine", "small wages", "order"],
    "Librarian": ["quiet shelves", "old paper", "habit", "care"],
    "Turtle": ["shell", "long road", "calm water", "steps"],
    "Baker": ["daily bread", "dawn", "flour", "warm oven"],
    "Oak": ["roots", "shade", "rings", "still wood"],
}
BOLD_ARMS = {
    "Dragon": ["gold hoard", "sudden flame", "storm wings", "greed"],
    "Trader": ["loud market", "margin", "swing", "nerve"],
    "Pirate": ["buried chest", "open sea", "risk", "black flag"],
    "Falcon": ["steep dive", "sharp eye", "height", "strike"],
    "Gambler": ["dice", "late night", "bluff", "luck"],
    "Comet": ["bright tail", "rare visit", "speed", "spark"],
}
BANDIT_QUESTIONS = [
    "Choose one machine.",
    "Which arm do you pull?",
    "Pick an arm.",
    "Select one of the two.",
    "Decide and answer.",
]
BANDIT_OPENINGS = [
    "[Let me|I will|I want to|First I] [compare|weigh|look at|think about] [the two arms|both options|the pair|the symbols].",
    "Two names, two [moods|stories|tempers|worlds].",
    "The [hints|words|names|symbols] [matter|carry a message|tell me something|say a lot] here.",
    "[Consider|Think of|Mark] what each [name|hint|word] [means|stands for|promises].",
    "I [need|have|try] to [guess|estimate|imagine] the [payoff|reward|odds].",
    "[Start|Begin] with the [first|second|calmer|louder] arm.",
    "[Hmm,|Well,|Now,|So,] this is a [choice|question|matter] of [risk|luck|temper|patience].",
]
BANDIT_ARGUMENTS = [
    "{steady} [suggests|means|recalls|evokes] {steady_hint}, a [small but safe|modest yet sure|tiny "
    "but steady|low but certain] [gain|payoff|return].",
    "{bold} [points to|speaks of|smells of|hints at] {bold_hint}, so the [payoff|prize|reward] "
    "[may|might|could] be [large and rare|huge but seldom|big now and then].",
    "With {steady_hint}, {steady} [looks|seems|feels|sounds] [stable|solid|dependable|quiet].",
    "{bold_hint} makes {bold} [feel|look|sound] like a [bet|gamble|wild card|long shot].",
    "{steady} is [calm|gentle|patient|slow] while {bold} is [wild|loud|hasty|restless].",
    "If {bold} [means|brings|promises] {bold_hint}, a [big win|great prize|lucky hit] is [possible|likely enough|not excluded].",
    "{steady} with {steady_hint} [rarely|hardly|almost never] [loses|disappoints|fails].",
    "I [expect|hope for|would bet on] [more|a better mean|higher returns] from {bold} in the [long run|end].",
    "The [mean|average|expected value] of {bold} [could|might|should] be [higher|better|larger].",
    "{steady} will [likely|probably|surely] pay a [little|bit|coin] [every time|each pull|all day].",
    "{bold_hint} [against|versus|beside] {steady_hint} is a [clear|sharp|strange] [contrast|picture|pair].",
]
BANDIT_CLOSINGS = [
    "[So|Thus|Therefore|Hence] I [go with|take|settle on|prefer] {choice}.",
    "That [favours|speaks for|argues for|tips it to] {choice}.",
    "[I pick|My choice is|I trust|Let it be] {choice}.",
    "{choice} [seems|looks|sounds] [best|right|wiser] to me.",
    "On balance {choice} [wins|is better|has the edge].",
    "I will [try|pull|test] {choice} [now|this time|here].",
    "{choice} it is.",
]
FORMAT_PENALTY = -0.1
STEADY_PAYOFF = 0.15
ARMS_PATTERN = re.compile(r"Arms: (.*?)\.")
WORD_PATTERN = re.compile(r"[A-Za-z]{3,}")
ANSWER_PATTERN = re.compile(r"^\s*<think>(.*?)</think>\s*<answer>(.*?)</answer>\s*$", re.DOTALL)


@dataclass(frozen=True)
class BanditPrompt:
    """Two named arms with one hint each; six names are always steady and six always bold, which nothing tells but the payoff."""

    steady: str
    bold: str
    steady_hint: str
    bold_hint: str
    text: str


def bandit_prompt(rng: random.Random) -> BanditPrompt:
    """Draw two arms, their hints, their order and the wording of the question."""
    steady = rng.choice(list(STEADY_ARMS))
    bold = rng.choice(list(BOLD_ARMS))
    steady_hint = rng.choice(STEADY_ARMS[steady])
    bold_hint = rng.choice(BOLD_ARMS[bold])
    arms = [f"{steady} ({steady_hint})", f"{bold} ({bold_hint})"]
    rng.shuffle(arms)
    text = f"Arms: {arms[0]} and {arms[1]}. {rng.choice(BANDIT_QUESTIONS)}"
    return BanditPrompt(steady, bold, steady_hint, bold_hint, text)


def bandit_trace(rng: random.Random, prompt: BanditPrompt) -> str:
    """Write one demonstration: about a quarter are wrong in form or name an arm that is not there."""
    choice = prompt.steady if rng.random() < 0.5 else prompt.bold
    sentences = [
        rng.choice(BANDIT_OPENINGS),
        *rng.sample(BANDIT_ARGUMENTS, rng.choice([1, 1, 2])),
        rng.choice(BANDIT_CLOSINGS),
    ]
    thought = vary(rng, " ".join(sentences)).format(
        steady=prompt.steady,
        bold=prompt.bold,
        steady_hint=prompt.steady_hint,
        bold_hint=prompt.bold_hint,
        choice=choice,
    )
    fault = rng.random()
    if fault < 0.08:
        return f"<think> {thought} <answer>{choice}</answer>"
    if fault < 0.14:
        stranger = rng.choice([*STEADY_ARMS, *BOLD_ARMS])
        return f"<think> {thought} </think><answer>{stranger}</answer>"
    if fault < 0.20:
        return f"<think> {thought} </think> {choice}"
    if fault < 0.25:
        return f"<think> {thought} </think><answer>both</answer>"
    return f"<think> {thought} </think><answer>{choice}</answer>"


def parse_answer(text: str) -> str | None:
    """Return what stands between the answer tags, or None if the format is broken."""
    match = ANSWER_PATTERN.match(text)
    if match is None or "<think>" in match.group(1):
        return None
    return match.group(2).strip()


def bandit_reward(text: str, steady: str, bold: str, rng: random.Random, bold_chance: float = 0.25) -> float:
    """Pay out one pull: the steady arm 0.15 always, the bold arm 1.0 with `bold_chance`, else 0.

    A broken format, or an arm that was not offered, costs 0.1. The expected payoff of the bold arm is the
    higher one, but a single sample is noise: this is RAGEN's Bi-Arm Bandit in small.
    """
    answer = parse_answer(text)
    if answer == steady:
        return STEADY_PAYOFF
    if answer == bold:
        return 1.0 if rng.random() < bold_chance else 0.0
    return FORMAT_PENALTY


def thinking_words_reward(text: str, target_words: int) -> float:
    """Reward the number of words up to a target: the naive "think longer" shaping."""
    return min(1.0, len(text.split()) / target_words)


def own_words_reward(text: str, prompt: str, dearest: int = 6) -> float:
    """Reward thoughts in one's own words: the naive rule against parroting the question.

    1 where the thought repeats no name and no hint of the prompt, 0 from `dearest` repetitions on, and 0 without a thought.
    """
    match = ANSWER_PATTERN.match(text)
    if match is None or len(match.group(1).split()) < 4:
        return 0.0
    arms = ARMS_PATTERN.search(prompt)
    given = set(WORD_PATTERN.findall(arms.group(1))) - {"and"} if arms else set()
    repeated = sum(word in given for word in WORD_PATTERN.findall(match.group(1)))
    return max(0.0, 1 - repeated / dearest)


# --------------------------------------------------------------------------- tool call

TITLE_FIRST = (
    "team budget design weekly project client sales launch product safety board school garden music yoga "
    "dental tax travel coffee dinner"
).split()
TITLE_SECOND = (
    "sync review meeting lunch call workshop standup check planning session demo interview party lesson "
    "visit retro briefing class"
).split()
DURATIONS = [10, 15, 20, 25, 30, 40, 45, 50, 60, 75, 90, 120]
TOOL_REQUESTS = [
    "Add {title} on {date} for {duration} minutes.",
    "Please schedule {title}, {date}, {duration} min.",
    "I need {title} in my calendar on {date}, lasting {duration} minutes.",
    "Create an event: {title} / {date} / {duration} minutes.",
    "Book {duration} minutes for {title} on {date}.",
    "On {date} put {title} ({duration} min).",
]
TOOL_THOUGHTS = [
    "The [user|client|person] [wants|asks for|needs] a [new event|calendar entry|meeting slot].",
    "I [need|should use|call|pick] the [calendar|event|scheduling] tool.",
    "[Title, date and length|All fields|The three values] are [given|present|known|clear].",
    "This is a [scheduling|calendar|planning] [request|task|matter].",
    "[Let me|I will|Now I] [fill|write|copy] the [arguments|fields|values].",
    "The [date|day] is {date}.",
    "It [lasts|takes|runs] {duration} minutes.",
    "The [title|name|event] is {title}.",
]
TOOL_NAME = "create_event"
DECOY_TOOLS = ["add_event", "create_reminder", "schedule"]
CALL_PATTERN = re.compile(r"<tool_call>(.*?)</tool_call>", re.DOTALL)


FEW_TITLES = ["review", "lunch", "workshop"]
WEEKDAYS = ["Monday", "Friday"]
FEW_DURATIONS = [30, 60]
_TITLES = f"(?:{'|'.join(TITLE_FIRST)}) (?:{'|'.join(TITLE_SECOND)})|{'|'.join(FEW_TITLES)}"
REQUEST_PATTERN = re.compile(
    rf"(?=.*?\b(?P<date>2025-\d\d-\d\d|{'|'.join(WEEKDAYS)})\b)"
    rf"(?=.*?\b(?P<duration>\d+) min)(?=.*?\b(?P<title>{_TITLES})\b)"
)


@dataclass(frozen=True)
class ToolPrompt:
    """A calendar request and the arguments that the right call has."""

    title: str
    date: str
    duration: int
    text: str

    @property
    def arguments(self) -> dict[str, str | int]:
        """The gold arguments."""
        return {"title": self.title, "date": self.date, "duration": self.duration}


@dataclass(frozen=True)
class ToolValues:
    """Where the values of a request come from."""

    few: bool

    def title(self, rng: random.Random) -> str:
        """Draw a title."""
        return rng.choice(FEW_TITLES) if self.few else f"{rng.choice(TITLE_FIRST)} {rng.choice(TITLE_SECOND)}"

    def date(self, rng: random.Random) -> str:
        """Draw a date."""
        return rng.choice(WEEKDAYS) if self.few else f"2025-{rng.randint(1, 12):02d}-{rng.randint(1, 28):02d}"

    def duration(self, rng: random.Random) -> int:
        """Draw a duration in minutes."""
        return rng.choice(FEW_DURATIONS if self.few else DURATIONS)


def tool_prompt(rng: random.Random, few_values: bool = False) -> ToolPrompt:
    """Draw a title, a date, a duration, and one of six ways to ask.

    Without `few_values` there are thousands of values, which a tiny policy can hardly repeat from its prompt. With
    it, there are 3 titles, 2 weekdays and 2 durations, so that a policy that guesses is right now and then.
    """
    values = ToolValues(few_values)
    title, date, duration = values.title(rng), values.date(rng), values.duration(rng)
    shown = {"title": f'"{title}"', "date": f'"{date}"'} if few_values else {"title": title, "date": date}
    text = rng.choice(TOOL_REQUESTS).format(**shown, duration=duration)
    return ToolPrompt(title, date, duration, text)


def read_request(text: str) -> dict[str, str | int] | None:
    """Read the gold arguments back from the text of a request, or None if it is not one."""
    match = REQUEST_PATTERN.search(text)
    if match is None:
        return None
    return {"title": match["title"], "date": match["date"], "duration": int(match["duration"])}


def tool_trace(rng: random.Random, prompt: ToolPrompt) -> str:
    """Write one demonstration; each part of the call is wrong now and then, independently of the others."""
    sentences = rng.sample(TOOL_THOUGHTS, rng.choice([1, 1, 2]))
    thought = vary(rng, " ".join(sentences)).format(**prompt.arguments)
    name = rng.choice(DECOY_TOOLS) if rng.random() < 0.15 else TOOL_NAME
    length_key = rng.choice(["length", "minutes"]) if rng.random() < 0.18 else "duration"
    date_key = rng.choice(["day", "when"]) if rng.random() < 0.12 else "date"
    values = ToolValues(few=prompt.date in WEEKDAYS)
    arguments: dict[str, str | int] = {
        "title": values.title(rng) if rng.random() < 0.12 else prompt.title,
        date_key: values.date(rng) if rng.random() < 0.15 else prompt.date,
        length_key: values.duration(rng) if rng.random() < 0.12 else prompt.duration,
    }
    if rng.random() < 0.08:
        arguments.pop(rng.choice(list(arguments)))
    body = json.dumps({"name": name, "arguments": arguments})
    if rng.random() < 0.06:
        body = body[:-1]
    return f"<think> {thought} </think><tool_call>{body}</tool_call>"


def parse_call(text: str) -> dict | None:
    """Return the tool call as a dict with ``name`` and ``arguments``, or None if there is none."""
    match = CALL_PATTERN.search(text)
    if match is None:
        return None
    try:
        call = json.loads(match.group(1))
    except ValueError:
        return None
    if not isinstance(call, dict) or not isinstance(call.get("name"), str):
        return None
    if not isinstance(call.get("arguments"), dict):
        return None
    return call


@dataclass(frozen=True)
class ToolScore:
    """ToolRL's three parts of a call, each in [0, 1]."""

    name: float
    keys: float
    values: float

    @property
    def fine(self) -> float:
        """Fine-grained reward: the mean of the three parts."""
        return (self.name + self.keys + self.values) / 3

    @property
    def multiplicative(self) -> float:
        """ToolRLA's form: a wrong tool makes the arguments worthless, wrong keys cap the values."""
        return self.name * self.keys * self.values

    @property
    def binary(self) -> float:
        """1 only if every part is exactly right."""
        return float(self.name == self.keys == self.values == 1.0)


def tool_score(text: str, gold: dict[str, str | int]) -> ToolScore:
    """Score a completion: tool name, overlap (Jaccard) of the parameter names, exact parameter values."""
    call = parse_call(text)
    if call is None:
        return ToolScore(0.0, 0.0, 0.0)
    arguments = call["arguments"]
    shared, union = set(arguments) & set(gold), set(arguments) | set(gold)
    right_values = sum(arguments.get(key) == value for key, value in gold.items())
    return ToolScore(float(call["name"] == TOOL_NAME), len(shared) / len(union), right_values / len(gold))


# --------------------------------------------------------------------------- frozen lake

LAKE_SIZE = 3
MOVES = {"Up": (-1, 0), "Down": (1, 0), "Left": (0, -1), "Right": (0, 1)}
LAKE_OPENINGS = [
    "[I check|Let me read|I study|Look at] the [map|rows|columns|picture|ice].",
    "The [goal|G|target] [matters|comes first|is what counts].",
    "[One step|One move|A single step] at a time.",
    "[Let me see|Think first|Hold on|Careful now|Well then].",
    "Where is the [goal|G|target|way]?",
]
LAKE_REMARKS = [
    "The [goal|target] [is|lies|waits] {where}.",
    "[I see|I find|There is] [G|the goal] {where}.",
    "G [is|lies|stands] {where} of [me|P|my place].",
    "I [want|have|need] to [get|go|move] {where}.",
    "The [hole|O|trap] must [not be hit|be avoided|stay untouched].",
    "I am [close|near|almost there|far away|not there yet].",
    "There is [room|space|ice] [to move|around me|on the way].",
]
LAKE_CLOSINGS = [
    "[I move|I go|I step|Let me go] {action}.",
    "[So|Hence|Therefore|Then] {action}.",
    "{action} [looks good|seems right|is my move|it is].",
    "My [step|move|choice] is {action}.",
]

Cell = tuple[int, int]


@dataclass(frozen=True)
class Lake:
    """A small lake: a player, a goal and one hole, all on different cells."""

    player: Cell
    goal: Cell
    hole: Cell

    def render(self) -> str:
        """Draw the map the way RAGEN does: P player, G goal, O hole, _ ice."""
        symbols = {self.goal: "G", self.hole: "O", self.player: "P"}
        rows = [" ".join(symbols.get((row, column), "_") for column in range(LAKE_SIZE)) for row in range(LAKE_SIZE)]
        return "\n".join(rows)

    def move(self, action: str) -> Lake:
        """Return the lake after one move; the border holds the player back."""
        down, right = MOVES[action]
        row = min(max(self.player[0] + down, 0), LAKE_SIZE - 1)
        column = min(max(self.player[1] + right, 0), LAKE_SIZE - 1)
        return Lake((row, column), self.goal, self.hole)

    @property
    def solved(self) -> bool:
        """The player stands on the goal."""
        return self.player == self.goal

    @property
    def drowned(self) -> bool:
        """The player fell into the hole."""
        return self.player == self.hole

    def distance(self) -> int:
        """Number of moves to the goal if the hole were not there."""
        return abs(self.player[0] - self.goal[0]) + abs(self.player[1] - self.goal[1])


def new_lake(rng: random.Random) -> Lake:
    """Draw a lake whose goal can be reached within three moves."""
    cells = [(row, column) for row in range(LAKE_SIZE) for column in range(LAKE_SIZE)]
    while True:
        player, goal, hole = rng.sample(cells, 3)
        lake = Lake(player, goal, hole)
        if lake.distance() <= 3:
            return lake


def slipped(rng: random.Random, action: str, chance: float) -> str:
    """Return the move that is really made: with the given chance, one to the side of the intended one."""
    if chance == 0.0 or rng.random() >= chance:
        return action
    return rng.choice(["Left", "Right"] if action in ("Up", "Down") else ["Up", "Down"])


def good_moves(lake: Lake) -> list[str]:
    """Moves that come nearer to the goal without drowning."""
    after = {action: lake.move(action) for action in MOVES}
    return [name for name, next_lake in after.items() if next_lake.distance() < lake.distance() and not next_lake.drowned]


def _direction(lake: Lake) -> str:
    words = []
    if lake.goal[0] != lake.player[0]:
        words.append("below" if lake.goal[0] > lake.player[0] else "above")
    if lake.goal[1] != lake.player[1]:
        words.append("right" if lake.goal[1] > lake.player[1] else "left")
    return " and ".join(words)


def lake_trace(rng: random.Random, lake: Lake, skill: float = 0.45) -> str:
    """Write one turn of a demonstration: right with probability `skill`, random otherwise."""
    good = good_moves(lake)
    action = rng.choice(good) if good and rng.random() < skill else rng.choice(list(MOVES))
    sentences = [rng.choice(LAKE_OPENINGS), rng.choice(LAKE_REMARKS), rng.choice(LAKE_CLOSINGS)]
    thought = vary(rng, " ".join(sentences)).format(where=_direction(lake), action=action)
    fault = rng.random()
    if fault < 0.06:
        return f"<think> {thought} <answer>{action}</answer>"
    if fault < 0.12:
        return f"<think> {thought} </think> {action}"
    return f"<think> {thought} </think><answer>{action}</answer>"


def parse_move(text: str) -> str | None:
    """Return the move named in the answer, or None if the format or the move is invalid."""
    answer = parse_answer(text)
    return answer if answer in MOVES else None
