"""
A small domain of the `eventsourcing` library for tests, written as its documentation writes one.

Accounts are opened, and money is put in; a process adds up what was put in.
"""

from __future__ import annotations

from typing import ClassVar
from uuid import NAMESPACE_URL, UUID, uuid5

from eventsourcing.application import AggregateNotFoundError, Application, ProcessingEvent
from eventsourcing.dispatch import singledispatchmethod
from eventsourcing.domain import Aggregate, DomainEventProtocol, event
from eventsourcing.system import ProcessApplication


class Account(Aggregate):
    @event("Opened")
    def __init__(self, owner: str) -> None:
        self.owner = owner
        self.balance = 0

    @event("PutIn")
    def put_in(self, amount: int) -> None:
        self.balance += amount


class Savings(Application[UUID]):
    snapshotting_intervals: ClassVar = {Account: 10}

    def open(self, owner: str) -> UUID:
        account = Account(owner)
        self.save(account)
        return account.id

    def put_in(self, account_id: UUID, *amounts: int) -> None:
        account: Account = self.repository.get(account_id)
        for amount in amounts:
            account.put_in(amount)
        self.save(account)


class Total(Aggregate):
    @event("Started")
    def __init__(self, name: str) -> None:
        self.name = name
        self.amount = 0

    @staticmethod
    def create_id(name: str) -> UUID:
        return uuid5(NAMESPACE_URL, f"/totals/{name}")

    @event("Added")
    def add(self, amount: int) -> None:
        self.amount += amount


class Totals(ProcessApplication[UUID]):
    @singledispatchmethod
    def policy(
        self, domain_event: DomainEventProtocol[UUID], processing_event: ProcessingEvent[UUID]
    ) -> None:
        pass

    @policy.register
    def _(self, domain_event: Account.PutIn, processing_event: ProcessingEvent[UUID]) -> None:  # type: ignore[name-defined]
        try:
            total: Total = self.repository.get(Total.create_id("all"))
        except AggregateNotFoundError:
            total = Total("all")
        total.add(domain_event.amount)
        processing_event.collect_events(total)

    def total(self) -> int:
        try:
            total: Total = self.repository.get(Total.create_id("all"))
        except AggregateNotFoundError:
            return 0
        return total.amount
