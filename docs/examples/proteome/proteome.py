"""
A pipeline of another field: proteins are cleaved by enzymes into peptides, whose masses a spectrometer can
find.

    proteome.project/<proteome>                       digests_per_protein, a plan
    proteome.protein/<proteome>/<protein>             covered
    proteome.digest/<proteome>/<protein>/<enzyme>     cleaved ─▶ weighed ─▶ exported

A protein is ready when all its digests are weighed: `proteome.protein.ready`. proteome.pyi has the types;
make it again after each change: `python -m ledger.pipelines.stub proteome`.
"""

from __future__ import annotations

from typing import Final

from ledger.pipelines import Flag, Level, Pipeline, Ready, Total, service_of

PROTEOME: Final = Pipeline(
    "proteome",
    help="Proteomes: proteins, and their digests by enzymes.",
    outside="org.example",
    levels=[
        Level("project"),
        Level("protein", ready=Ready("weighed"), flags=[Flag("covered", short="cov")]),
        Level(
            "digest",
            total=Total("digests_per_protein", "The number of enzymes by which each protein is cleaved."),
            outside={"completed": "processed"},
            flags=[
                Flag("cleaved", clears=("weighed",), short="clvd"),
                Flag("weighed", clears=("exported",), short="wghd"),
                Flag("exported", short="exp"),
            ],
        ),
    ],
)

ProteomeStateService = service_of(PROTEOME)
PROTEOMES: Final = ProteomeStateService()
