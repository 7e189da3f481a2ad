"""The maps of `vizdoom`: what an agent can do in each, and in what units its rewards are.

Most have a list of actions, of which the agent chooses one. `deathmatch` has Sample Factory's independent action heads
instead (Petrenko et al. 2020, appendix A.3, table A.4): one choice of each head, all pressed together.
"""

from __future__ import annotations

from dataclasses import dataclass

Action = tuple[str, ...]
"""The buttons held down; () is the no-op."""
Choice = tuple[tuple[str, float], ...]
"""Buttons and how far each is pressed: 1, or degrees per frame of one that turns; () presses none."""


@dataclass(frozen=True, kw_only=True, slots=True)
class DoomMap:
    """A map that comes with ViZDoom; it has either actions or heads."""

    actions: tuple[Action, ...] = ()
    """What the agent can do; the no-op first."""
    heads: tuple[tuple[Choice, ...], ...] = ()
    """One choice of each is pressed, all at once; no button is in two heads."""
    reward_scale: float
    """The learner's reward is the map's times this."""
    frameskip: int = 4
    """Frames per env step, as published."""
    discount: float = 0.99
    """Discount factor of one env step, as published."""

    @property
    def buttons(self) -> list[str]:
        """All that are ever pressed, sorted."""
        alone = {button for action in self.actions for button in action}
        return sorted(alone | {button for head in self.heads for choice in head for button, _ in choice})


def one_of(*buttons: str) -> tuple[Choice, ...]:
    """A head: no button, or one of these."""
    return ((), *(((button, 1.0),) for button in buttons))


STRAFE_AND_SHOOT: tuple[Action, ...] = ((), ("MOVE_LEFT",), ("MOVE_RIGHT",), ("ATTACK",))
TURN_AND_SHOOT: tuple[Action, ...] = ((), ("TURN_LEFT",), ("TURN_RIGHT",), ("ATTACK",))
WALK: tuple[Action, ...] = (
    (),
    ("TURN_LEFT",),
    ("TURN_RIGHT",),
    ("MOVE_FORWARD",),
    ("MOVE_FORWARD", "TURN_LEFT"),
    ("MOVE_FORWARD", "TURN_RIGHT"),
)
CORRIDOR: tuple[Action, ...] = (
    *STRAFE_AND_SHOOT,
    ("MOVE_FORWARD",),
    ("MOVE_BACKWARD",),
    ("TURN_LEFT",),
    ("TURN_RIGHT",),
)
AIM: tuple[Choice, ...] = tuple((("TURN_LEFT_RIGHT_DELTA", 1.25 * step),) for step in range(-10, 11))
"""Turns from 12.5 degrees per frame to the left to 12.5 to the right, in steps of 1.25; the eleventh turns nowhere."""
FULL_CONTROL: tuple[tuple[Choice, ...], ...] = (
    one_of("MOVE_FORWARD", "MOVE_BACKWARD"),
    one_of("MOVE_LEFT", "MOVE_RIGHT"),
    one_of("ATTACK"),
    one_of("SPEED"),
    one_of("USE"),
    one_of(*(f"SELECT_WEAPON{slot}" for slot in range(1, 8))),
    AIM,
)
"""The seven heads of table A.4, which make 12,096 actions."""

MAPS = {
    "basic": DoomMap(actions=STRAFE_AND_SHOOT, reward_scale=0.01),
    "my_way_home": DoomMap(actions=WALK, reward_scale=1.0),
    "simpler_basic": DoomMap(actions=STRAFE_AND_SHOOT, reward_scale=0.01),
    "rocket_basic": DoomMap(actions=STRAFE_AND_SHOOT, reward_scale=0.01),
    "predict_position": DoomMap(actions=TURN_AND_SHOOT, reward_scale=1.0),
    "defend_the_center": DoomMap(actions=TURN_AND_SHOOT, reward_scale=1.0),
    "defend_the_line": DoomMap(actions=TURN_AND_SHOOT, reward_scale=1.0),
    "deadly_corridor": DoomMap(actions=CORRIDOR, reward_scale=0.01),
    "take_cover": DoomMap(actions=STRAFE_AND_SHOOT[:3], reward_scale=0.01),
    "health_gathering": DoomMap(actions=WALK, reward_scale=0.01),
    "health_gathering_supreme": DoomMap(actions=WALK, reward_scale=0.01),
    "deathmatch": DoomMap(heads=FULL_CONTROL, reward_scale=1.0, frameskip=2, discount=0.995),
}
"""Variants, the default first. `deathmatch`, alone against monsters, gives 1 to 10 for each that is killed."""
