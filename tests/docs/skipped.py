"""The blocks of the documentation that are not run: page and reason. The list may only grow by hand."""

SKIPPED = [
    ("README.md", "it makes an environment; tests/demo and CI run the same"),
    ("docs/how-to/embedded-server.md", "it would stop the server of these tests"),
    (
        "docs/how-to/run-the-projector.md",
        "it goes on until it is stopped; tests/gateway/test_views.py runs it",
    ),
    (
        "docs/how-to/run-the-projector.md",
        "the view lives in this page only; tests/gateway/test_views.py runs it",
    ),
    ("docs/how-to/run-workers.md", "it goes on until it is stopped; the block below runs it"),
    ("docs/how-to/look-at-the-past.md", "the name of the database is yours"),
    ("docs/explanation/views.md", "it is what a rebuild makes"),
    *[("docs/how-to/run-kafka.md", "it starts a broker, which the tests of Kafka do")] * 2,
    ("docs/how-to/run-kafka.md", "it needs the broker"),
    *[("docs/how-to/run-the-relay.md", "it needs a broker")] * 4,
    *[("docs/how-to/consume-from-kafka.md", "there is no group on this page")] * 2,
    ("docs/how-to/consume-from-kafka.md", "it needs a cluster, and runs until it is stopped"),
    ("docs/how-to/consume-from-kafka.md", "it needs a cluster"),
    (
        "docs/how-to/run-the-demo-on-your-images.md",
        "tests/demo runs it, on the shipped image and on a folder",
    ),
    *[
        (
            "docs/how-to/use-with-prefect.md",
            "it needs the extra and a Prefect server; tests/prefect_flows runs it",
        )
    ]
    * 5,
    *[("docs/how-to/use-with-prefect.md", "it is what the block above prints")] * 3,
    (
        "docs/how-to/operate-a-ledger.md",
        "it needs another server; tests/faults/test_restore_by_the_page.py runs it there",
    ),
    *[("docs/how-to/install.md", "it installs packages")] * 2,
    ("docs/tutorial.md", "it installs packages"),
    (
        "docs/how-to/feed-a-view-from-kafka.md",
        "it needs a broker and a relay; tests/gateway/test_kafka_topics.py runs it",
    ),
    (
        "docs/how-to/feed-a-view-from-kafka.md",
        "it needs a broker and a relay; tests/kafka/test_feed.py runs it",
    ),
    *[
        (
            "docs/how-to/wake-workers-by-kafka.md",
            "it needs a broker and a relay; tests/kafka/test_hints.py runs such workers",
        )
    ]
    * 2,
    (
        "docs/how-to/consume-in-another-language.md",
        "it needs kcat and a broker; tests/kafka/test_other_clients.py runs it where kcat is installed",
    ),
    ("docs/how-to/consume-from-kafka.md", "tests/kafka/test_rights.py runs a consumer with these rights"),
    (
        "docs/how-to/feed-a-view-from-kafka.md",
        "it needs a broker and a relay; tests/kafka/test_feed.py runs it",
    ),
    ("docs/how-to/run-the-relay.md", "it needs a broker; tests/kafka/test_states.py runs it"),
    (
        "docs/how-to/consume-in-another-language.md",
        "it needs a broker; tests/kafka/test_other_clients.py runs it",
    ),
    ("docs/explanation/kafka.md", "it needs a broker; tests/kafka/test_states.py runs such a relay"),
    (
        "docs/how-to/run-prefect-on-the-ledger.md",
        "it goes on until it is stopped; the blocks below run it",
    ),
    ("docs/how-to/serve-over-http.md", "it goes on until it is stopped; the block below runs it"),
]
