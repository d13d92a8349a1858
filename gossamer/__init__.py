"""Write down one decentralized-learning experiment and hold the same bits wherever it runs."""

__version__ = "0.1.0"
