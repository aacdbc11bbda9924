"""Names of runs that nobody named: an adjective and an animal."""

from __future__ import annotations

from secrets import choice
from typing import Final

_ADJECTIVES: Final = """
    amber ancient autumn azure bold brave bright brisk bronze calm careful cheerful clear clever copper
    coral crimson curious dapper daring deep eager early elegant emerald fair fearless fine fluent fond
    free fresh frosty gentle glad golden graceful grand green happy hardy honest humble indigo ivory jade
    jolly keen kind lively loyal lucky mellow merry mighty modest noble olive patient polite proud quick
    quiet rapid robust rosy royal ruby sandy serene sharp shiny silent silver sincere smart solid steady
    stout sunny swift tidy upbeat vivid warm wise witty zesty
"""
_ANIMALS: Final = """
    albatross antelope badger beaver bison bobcat buffalo camel caribou cheetah chough condor cormorant
    crane cricket curlew deer dolphin dove dragonfly eagle egret elk falcon ferret finch fox gazelle gecko
    gibbon goldfinch goose grouse gull hare hawk hedgehog heron hornbill ibex ibis jackal jaguar jay
    kestrel kingfisher koala lark lemur leopard linnet lion lizard llama lynx magpie marmot marten mole
    moose newt nightingale ocelot octopus oriole osprey otter owl panda panther parrot pelican penguin
    petrel pheasant plover puffin quail rabbit raven reindeer robin salmon seal shrew sparrow squirrel
    starling stork swallow swan swift tapir tern thrush tiger toucan turtle viper vole walrus weasel whale
    wolf wombat wren yak zebra
"""


def new_name() -> str:
    """A name for a run, such as `brave-otter`; not unique."""
    return f"{choice(_ADJECTIVES.split())}-{choice(_ANIMALS.split())}"
