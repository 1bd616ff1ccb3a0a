"""What papers on training tool agents say can go wrong, and where echotrap would see it: docs/coverage.md."""

from __future__ import annotations

from typing import NamedTuple

from echotrap.fields import FIELDS

__all__ = ["CLAIMS", "Claim", "page"]


class Claim(NamedTuple):
    """One failure, and what shows it.

    Attributes
    ----------
    number : int
        Its place in the list.
    says : str
        The failure in a few words.
    origin : str
        Who reports it.
    detectors, signals : tuple of str
        What shows it; one of them, or ``why_not``.
    read_from : str
        ``"metrics"``, ``"rollouts"``, ``"evaluations"`` or several.
    why_not : str
        Why logs cannot show it, or which part of it they cannot.
    """

    number: int
    says: str
    origin: str
    detectors: tuple[str, ...] = ()
    signals: tuple[str, ...] = ()
    read_from: str = ""
    why_not: str = ""


def _claim(
    number: int, says: str, origin: str, detectors: str = "", signals: str = "", read_from: str = "", why_not: str = ""
) -> Claim:
    return Claim(number, says, origin, tuple(detectors.split()), tuple(signals.split()), read_from, why_not)


CLAIMS = (
    _claim(1, "reward spread, entropy and gradient fail together", "RAGEN", "echo-trap",
           "rw_ratio group_reward_std entropy grad_norm", "metrics, rollouts"),
    _claim(2, "a flat curve may be convergence", "RAGEN", "solved plateau", "success_rate eval_score", "metrics"),
    _claim(3, "rollouts converge to one unjustified phrase while the score still looks fine", "RAGEN",
           "within-rollout-repetition cross-rollout-repetition unjustified-thoughts",
           "rep_4 cross_rollout_share opening_share unjustified_frac", "rollouts"),
    _claim(4, "exact match pays a near miss like a wrong tool", "ToolRL", "coarse-reward-ties",
           "tie_frac ranked_ties_frac call_score_binary call_score_fine_grained", "rollouts"),
    _claim(5, "a reward for the answer alone says nothing about the steps", "ToolRL", "zero-variance-groups coarse-reward-ties",
           "reward_levels zero_std_frac", "metrics, rollouts"),
    _claim(6, "a coarse reward over many turns ends in collapse", "ToolRL, RAGEN", "echo-trap coarse-reward-ties",
           "tie_frac num_turns", "rollouts"),
    _claim(7, "without pay for reasoning, thoughts become shallow or made up", "RAGEN", "length-collapse unjustified-thoughts",
           "thinking_length thinking_share unjustified_frac", "rollouts"),
    _claim(8, "knowing when to call and how to recover from an error", "ReTool", "tool-overuse premature-termination "
           "tool-abandonment", "calls_per_turn first_call_turn zero_call_frac corrected_frac", "metrics, rollouts"),
    _claim(9, "the first thing to learn is to call at all", "R1-Searcher", "tool-abandonment tool-format-collapse",
           "zero_call_frac valid_call_frac", "rollouts"),
    _claim(10, "a wrong tool and a malformed argument look the same to a binary reward", "ToolRLA",
           "coarse-reward-ties reward-misalignment",
           "name_error_frac parameter_name_error_frac parameter_value_error_frac call_score_multiplicative", "rollouts"),
    _claim(11, "tools that contradict one another or err, and misplaced trust in them", "TEA-CXA",
           "tool-mix-collapse environment-failure", "error_result_frac success_with_calls success_without_calls",
           "metrics, rollouts"),
    _claim(12, "a generator and a solver that train one another drift in difficulty", "Tool-R0", "regime-change",
           "zero_std_all_pass_frac zero_std_all_fail_frac success_rate", "metrics, rollouts"),
    _claim(13, "useful transitions between tools are lost", "PhGPO", "tool-mix-collapse",
           "tool_transition_entropy call_sequences_frac", "rollouts"),
    _claim(14, "the gradients of reasoning and of calling oppose one another", "DART, CEA, MSARL",
           why_not="needs gradients by token class, which no trainer logs"),
    _claim(15, "credit and ratios at different granularity make updates unstable", "PaperScout", "importance-ratio-drift "
           "staleness gradient-creep", "is_ratio_std ess_frac policy_lag", "metrics"),
    _claim(16, "a judge that scores the same text differently", "SCRIBE", "noisy-verifier", "unequal_copies_frac", "rollouts"),
    _claim(17, "exploration of long tasks finds nothing new", "H-EPM", "capability-narrowing never-learned",
           "pass_at_k call_sequences_frac distinct_4", "evaluations, rollouts"),
    _claim(18, "calls for show, one tool for everything, results that nobody reads", "Proof-of-Use",
           "decorative-tool-calls tool-mix-collapse tool-overuse", "evidence_frac top_tool_share", "rollouts"),
    _claim(19, "real tools change and fail", "DeepTravel", "environment-failure staleness",
           "tool_error_frac tool_latency error_result_frac policy_lag", "metrics, rollouts"),
    _claim(20, "too many calls, collapse, and a gap to real use", "survey", "tool-overuse echo-trap train-eval-divergence",
           "tool_calls eval_score", "metrics, evaluations"),
    _claim(21, "the best of k tries may widen or narrow", "PASS@(k,T)", "capability-narrowing", "pass_at_k eval_score",
           "evaluations"),
    _claim(22, "progress is forgotten and actions repeat", "UI-Copilot", "action-loops unjustified-thoughts",
           "repeated_calls_frac call_loops_frac", "rollouts"),
    _claim(23, "distracting tools and wrong results mislead", "COVERT", "environment-failure",
           "error_result_frac success_with_calls corrected_frac", "rollouts"),
    _claim(24, "entropy is low from the start after fine-tuning; openings become one", "E3-TIR",
           "entropy-collapse cross-rollout-repetition plateau", "entropy opening_share", "metrics, rollouts"),
    _claim(25, "reflexive calls; a penalty that suppresses needed ones or drowns", "HDPO", "tool-overuse reward-misalignment",
           "component_share_max success_without_calls", "rollouts"),
    _claim(26, "sparse reward at the end of a long task", "SEARL, TRUST-SQL, TIPS", "zero-variance-groups never-learned",
           "zero_std_all_fail_frac", "metrics, rollouts"),
    _claim(27, "a reward per turn that points away from the outcome", "Iterative Reward Calibration", "reward-misalignment",
           "component_corr_min", "rollouts"),
    _claim(28, "what is retrieved is noise and fills the context", "SKILL0, ATLAS", "context-saturation",
           "observation_share result_share prompt_length evidence_frac", "metrics, rollouts"),
    _claim(29, "chains break by wrong parameters", "graduated reward", "coarse-reward-ties tool-format-collapse",
           "name_error_frac parameter_name_error_frac parameter_value_error_frac order_error_frac malformed_error_frac",
           "rollouts"),
    _claim(30, "an unstable environment spoils the policy", "TravelPlanner recipe", "environment-failure",
           "tool_error_frac error_result_frac empty_frac", "metrics, rollouts"),
    _claim(31, "experience that is retrieved no longer fits the policy", "SLEA-RL", "staleness", "policy_lag", "metrics",
           why_not="the age of what is retrieved into a prompt is not logged; only the age of the policy is"),
    _claim(32, "teacher and student disagree on tokens", "OpenClaw-RL", "sampler-mismatch", "logprob_gap mismatch_kl",
           "metrics"),
    _claim(33, "importance ratios plunge and the gradient is gone", "SAPO", "importance-ratio-drift dead-gradient",
           "is_ratio_mean is_ratio_min grad_norm", "metrics"),
    _claim(34, "rollouts end early and favour some tools", "SynPlanResearch-R1", "premature-termination tool-mix-collapse",
           "num_turns top_tool_share", "metrics, rollouts"),
    _claim(35, "thinking does not grow with difficulty", "AutoTool", "length-collapse length-explosion", "thinking_length",
           "rollouts", why_not="difficulty is not logged; only the length over training is judged"),
    _claim(36, "descriptions of tools fill the context and errors add up", "ATLAS", "context-saturation truncation",
           "prompt_length error_result_frac", "metrics, rollouts"),
    _claim(37, "which part of the agent is to blame", "EvoTool", "tool-format-collapse",
           "malformed_error_frac name_error_frac parameter_value_error_frac order_error_frac", "rollouts"),
    _claim(38, "an outcome reward breeds needless calls", "tool-overuse illusion", "tool-overuse",
           "tool_calls success_without_calls queries_per_question near_duplicate_queries_frac", "metrics, rollouts"),
    _claim(39, "successes are copies, and the pass rate hides which tasks teach", "TopoCurate",
           "reward-variance-collapse zero-variance-groups", "copies_frac rw_ratio group_variance_dispersion", "rollouts"),
    _claim(40, "examples in the prompt are withdrawn during training", "ICRL, SKILL0", "regime-change", "prompt_length",
           "metrics"),
    _claim(41, "type, scale, granularity and timing of the reward matter", "ToolRL",
           "coarse-reward-ties reward-misalignment reward-rescale", "reward_levels component_share_max reward_min reward_max",
           "rollouts"),
)  # fmt: skip
"""All of them, in order."""


MEASURED = (
    ("coarse-reward-ties", 6, 14), ("reward-misalignment", 6, 10), ("noisy-verifier", 6, 10), ("void-turns", 6, 6),
    ("decorative-tool-calls", 6, 13), ("fabricated-observations", 6, 4), ("tool-mix-collapse", 6, 7), ("action-loops", 6, 4),
)  # fmt: skip
"""Simulated agents that were told, of six, and the median delay in steps (seeds 100-105)."""


def page() -> str:
    """docs/coverage.md."""
    lines = [
        "# What can go wrong, and what shows it",
        "",
        "Failures that work on tool agents reports, in short words, and the detectors and signals of echotrap that see them.",
        "*Read from*: metrics are what a trainer logs; rollouts are dumped completions; evaluations are held-out scores.",
        "Most detectors for tools are extensions: they inform and do not fail a check.",
        "This page is written from `src/echotrap/evaluation/claims.py`.",
        "",
        "| # | what goes wrong | reported by | detectors | signals | read from | what logs cannot show |",
        "|---|---|---|---|---|---|---|",
    ]
    for claim in CLAIMS:
        detectors = ", ".join(f"[{name}](catalogue/{name}.md)" for name in claim.detectors)
        signals = ", ".join(f"`{name}`" for name in claim.signals)
        cells = (str(claim.number), claim.says, claim.origin, detectors, signals, claim.read_from, claim.why_not)
        lines.append("| " + " | ".join(cell or "-" for cell in cells) + " |")
    lines += [
        "",
        "## Measured on simulated agents",
        "",
        "Six seeded agents of each kind (36 rollouts a step, 80 steps, four tools) are sound until step 40, then fail; texts are",
        "parsed, measured and judged as those of a real run (`tests/test_tool_failures.py` repeats one seed of each).",
        "An alarm counts when its onset lies within fifteen steps. On six sound agents none of these detectors spoke.",
        "",
        "| detector | told | median steps from failure to alarm |",
        "|---|---|---|",
    ]
    lines += [f"| {name} | {told}/6 | {delay} |" for name, told, delay in MEASURED]
    used = sorted({name for claim in CLAIMS for name in claim.signals})
    lines += ["", "## The signals", "", "| signal | meaning |", "|---|---|"]
    lines += [f"| `{name}` | {FIELDS[name].meaning} |" for name in used]
    return "\n".join(lines) + "\n"
