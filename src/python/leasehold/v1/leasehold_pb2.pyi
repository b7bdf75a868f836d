from google.protobuf import duration_pb2 as _duration_pb2
from google.protobuf import field_mask_pb2 as _field_mask_pb2
from google.protobuf import timestamp_pb2 as _timestamp_pb2
from google.protobuf import wrappers_pb2 as _wrappers_pb2
from google.protobuf.internal import containers as _containers
from google.protobuf.internal import enum_type_wrapper as _enum_type_wrapper
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from typing import ClassVar as _ClassVar, Iterable as _Iterable, Mapping as _Mapping, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor
END_REASON_EXPIRED: EndReason
END_REASON_FAILED: EndReason
END_REASON_FORCED: EndReason
END_REASON_MAX_HOLD: EndReason
END_REASON_RELEASED: EndReason
END_REASON_UNKNOWN: EndReason
END_REASON_UNSPECIFIED: EndReason
LEASE_STATE_EXPIRED: LeaseState
LEASE_STATE_HELD_TOO_LONG: LeaseState
LEASE_STATE_OVERDUE: LeaseState
LEASE_STATE_SILENT: LeaseState
LEASE_STATE_UNSPECIFIED: LeaseState
LIVENESS_ALIVE: Liveness
LIVENESS_EXPIRED: Liveness
LIVENESS_OVERDUE: Liveness
LIVENESS_SUSPECTED_DEAD: Liveness
LIVENESS_UNSPECIFIED: Liveness
MODE_EXCLUSIVE: Mode
MODE_SHARED: Mode
MODE_UNSPECIFIED: Mode
OUTCOME_DENIED: Outcome
OUTCOME_INVALID: Outcome
OUTCOME_LOST: Outcome
OUTCOME_OK: Outcome
OUTCOME_REJECTED: Outcome
OUTCOME_RETRY: Outcome
OUTCOME_UNSPECIFIED: Outcome
RIGHT_ADMIN: Right
RIGHT_GUARD: Right
RIGHT_LEASE: Right
RIGHT_READ: Right
RIGHT_UNSPECIFIED: Right

class AccessRule(_message.Message):
    __slots__ = ["created_at", "created_by", "namespace", "principal", "rights"]
    CREATED_AT_FIELD_NUMBER: _ClassVar[int]
    CREATED_BY_FIELD_NUMBER: _ClassVar[int]
    NAMESPACE_FIELD_NUMBER: _ClassVar[int]
    PRINCIPAL_FIELD_NUMBER: _ClassVar[int]
    RIGHTS_FIELD_NUMBER: _ClassVar[int]
    created_at: _timestamp_pb2.Timestamp
    created_by: str
    namespace: Namespace
    principal: str
    rights: _containers.RepeatedScalarFieldContainer[Right]
    def __init__(self, principal: _Optional[str] = ..., namespace: _Optional[_Union[Namespace, _Mapping]] = ..., rights: _Optional[_Iterable[_Union[Right, str]]] = ..., created_at: _Optional[_Union[_timestamp_pb2.Timestamp, _Mapping]] = ..., created_by: _Optional[str] = ...) -> None: ...

class AccessToken(_message.Message):
    __slots__ = ["created_at", "created_by", "expires_at", "id", "last_used_at", "name"]
    CREATED_AT_FIELD_NUMBER: _ClassVar[int]
    CREATED_BY_FIELD_NUMBER: _ClassVar[int]
    EXPIRES_AT_FIELD_NUMBER: _ClassVar[int]
    ID_FIELD_NUMBER: _ClassVar[int]
    LAST_USED_AT_FIELD_NUMBER: _ClassVar[int]
    NAME_FIELD_NUMBER: _ClassVar[int]
    created_at: _timestamp_pb2.Timestamp
    created_by: str
    expires_at: _timestamp_pb2.Timestamp
    id: str
    last_used_at: _timestamp_pb2.Timestamp
    name: str
    def __init__(self, id: _Optional[str] = ..., name: _Optional[str] = ..., created_at: _Optional[_Union[_timestamp_pb2.Timestamp, _Mapping]] = ..., created_by: _Optional[str] = ..., expires_at: _Optional[_Union[_timestamp_pb2.Timestamp, _Mapping]] = ..., last_used_at: _Optional[_Union[_timestamp_pb2.Timestamp, _Mapping]] = ...) -> None: ...

class AcquireAllRequest(_message.Message):
    __slots__ = ["duration", "items", "labels", "lease_key", "owner", "wait", "wait_forever"]
    class LabelsEntry(_message.Message):
        __slots__ = ["key", "value"]
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: str
        def __init__(self, key: _Optional[str] = ..., value: _Optional[str] = ...) -> None: ...
    DURATION_FIELD_NUMBER: _ClassVar[int]
    ITEMS_FIELD_NUMBER: _ClassVar[int]
    LABELS_FIELD_NUMBER: _ClassVar[int]
    LEASE_KEY_FIELD_NUMBER: _ClassVar[int]
    OWNER_FIELD_NUMBER: _ClassVar[int]
    WAIT_FIELD_NUMBER: _ClassVar[int]
    WAIT_FOREVER_FIELD_NUMBER: _ClassVar[int]
    duration: _duration_pb2.Duration
    items: _containers.RepeatedCompositeFieldContainer[AcquireItem]
    labels: _containers.ScalarMap[str, str]
    lease_key: str
    owner: str
    wait: _duration_pb2.Duration
    wait_forever: bool
    def __init__(self, items: _Optional[_Iterable[_Union[AcquireItem, _Mapping]]] = ..., duration: _Optional[_Union[_duration_pb2.Duration, _Mapping]] = ..., wait: _Optional[_Union[_duration_pb2.Duration, _Mapping]] = ..., wait_forever: bool = ..., owner: _Optional[str] = ..., lease_key: _Optional[str] = ..., labels: _Optional[_Mapping[str, str]] = ...) -> None: ...

class AcquireAllResponse(_message.Message):
    __slots__ = ["leases", "waited"]
    LEASES_FIELD_NUMBER: _ClassVar[int]
    WAITED_FIELD_NUMBER: _ClassVar[int]
    leases: _containers.RepeatedCompositeFieldContainer[Lease]
    waited: _duration_pb2.Duration
    def __init__(self, leases: _Optional[_Iterable[_Union[Lease, _Mapping]]] = ..., waited: _Optional[_Union[_duration_pb2.Duration, _Mapping]] = ...) -> None: ...

class AcquireEvent(_message.Message):
    __slots__ = ["granted", "queued", "waited"]
    GRANTED_FIELD_NUMBER: _ClassVar[int]
    QUEUED_FIELD_NUMBER: _ClassVar[int]
    WAITED_FIELD_NUMBER: _ClassVar[int]
    granted: Lease
    queued: Contention
    waited: _duration_pb2.Duration
    def __init__(self, queued: _Optional[_Union[Contention, _Mapping]] = ..., granted: _Optional[_Union[Lease, _Mapping]] = ..., waited: _Optional[_Union[_duration_pb2.Duration, _Mapping]] = ...) -> None: ...

class AcquireItem(_message.Message):
    __slots__ = ["at_least", "mode", "scope", "units"]
    AT_LEAST_FIELD_NUMBER: _ClassVar[int]
    MODE_FIELD_NUMBER: _ClassVar[int]
    SCOPE_FIELD_NUMBER: _ClassVar[int]
    UNITS_FIELD_NUMBER: _ClassVar[int]
    at_least: _duration_pb2.Duration
    mode: Mode
    scope: Scope
    units: int
    def __init__(self, scope: _Optional[_Union[Scope, _Mapping]] = ..., mode: _Optional[_Union[Mode, str]] = ..., units: _Optional[int] = ..., at_least: _Optional[_Union[_duration_pb2.Duration, _Mapping]] = ...) -> None: ...

class AcquireRequest(_message.Message):
    __slots__ = ["ask_hand_over", "at_least", "duration", "labels", "lease_key", "mode", "owner", "priority", "scope", "units", "wait", "wait_forever", "wait_while_alive"]
    class LabelsEntry(_message.Message):
        __slots__ = ["key", "value"]
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: str
        def __init__(self, key: _Optional[str] = ..., value: _Optional[str] = ...) -> None: ...
    ASK_HAND_OVER_FIELD_NUMBER: _ClassVar[int]
    AT_LEAST_FIELD_NUMBER: _ClassVar[int]
    DURATION_FIELD_NUMBER: _ClassVar[int]
    LABELS_FIELD_NUMBER: _ClassVar[int]
    LEASE_KEY_FIELD_NUMBER: _ClassVar[int]
    MODE_FIELD_NUMBER: _ClassVar[int]
    OWNER_FIELD_NUMBER: _ClassVar[int]
    PRIORITY_FIELD_NUMBER: _ClassVar[int]
    SCOPE_FIELD_NUMBER: _ClassVar[int]
    UNITS_FIELD_NUMBER: _ClassVar[int]
    WAIT_FIELD_NUMBER: _ClassVar[int]
    WAIT_FOREVER_FIELD_NUMBER: _ClassVar[int]
    WAIT_WHILE_ALIVE_FIELD_NUMBER: _ClassVar[int]
    ask_hand_over: bool
    at_least: _duration_pb2.Duration
    duration: _duration_pb2.Duration
    labels: _containers.ScalarMap[str, str]
    lease_key: str
    mode: Mode
    owner: str
    priority: int
    scope: Scope
    units: int
    wait: _duration_pb2.Duration
    wait_forever: bool
    wait_while_alive: bool
    def __init__(self, scope: _Optional[_Union[Scope, _Mapping]] = ..., duration: _Optional[_Union[_duration_pb2.Duration, _Mapping]] = ..., wait: _Optional[_Union[_duration_pb2.Duration, _Mapping]] = ..., wait_forever: bool = ..., owner: _Optional[str] = ..., lease_key: _Optional[str] = ..., labels: _Optional[_Mapping[str, str]] = ..., wait_while_alive: bool = ..., mode: _Optional[_Union[Mode, str]] = ..., units: _Optional[int] = ..., at_least: _Optional[_Union[_duration_pb2.Duration, _Mapping]] = ..., priority: _Optional[int] = ..., ask_hand_over: bool = ...) -> None: ...

class AcquireResponse(_message.Message):
    __slots__ = ["lease", "waited"]
    LEASE_FIELD_NUMBER: _ClassVar[int]
    WAITED_FIELD_NUMBER: _ClassVar[int]
    lease: Lease
    waited: _duration_pb2.Duration
    def __init__(self, lease: _Optional[_Union[Lease, _Mapping]] = ..., waited: _Optional[_Union[_duration_pb2.Duration, _Mapping]] = ...) -> None: ...

class Alive(_message.Message):
    __slots__ = ["sequence"]
    SEQUENCE_FIELD_NUMBER: _ClassVar[int]
    sequence: int
    def __init__(self, sequence: _Optional[int] = ...) -> None: ...

class AskHandOverRequest(_message.Message):
    __slots__ = ["lease_key", "owner", "reason", "scope", "token"]
    LEASE_KEY_FIELD_NUMBER: _ClassVar[int]
    OWNER_FIELD_NUMBER: _ClassVar[int]
    REASON_FIELD_NUMBER: _ClassVar[int]
    SCOPE_FIELD_NUMBER: _ClassVar[int]
    TOKEN_FIELD_NUMBER: _ClassVar[int]
    lease_key: str
    owner: str
    reason: str
    scope: Scope
    token: int
    def __init__(self, scope: _Optional[_Union[Scope, _Mapping]] = ..., lease_key: _Optional[str] = ..., reason: _Optional[str] = ..., token: _Optional[int] = ..., owner: _Optional[str] = ...) -> None: ...

class AskHandOverResponse(_message.Message):
    __slots__ = ["holders"]
    HOLDERS_FIELD_NUMBER: _ClassVar[int]
    holders: _containers.RepeatedCompositeFieldContainer[Lease]
    def __init__(self, holders: _Optional[_Iterable[_Union[Lease, _Mapping]]] = ...) -> None: ...

class Contention(_message.Message):
    __slots__ = ["holder", "holder_count", "holders", "liveness", "rests", "units_free", "waiters_ahead"]
    HOLDERS_FIELD_NUMBER: _ClassVar[int]
    HOLDER_COUNT_FIELD_NUMBER: _ClassVar[int]
    HOLDER_FIELD_NUMBER: _ClassVar[int]
    LIVENESS_FIELD_NUMBER: _ClassVar[int]
    RESTS_FIELD_NUMBER: _ClassVar[int]
    UNITS_FREE_FIELD_NUMBER: _ClassVar[int]
    WAITERS_AHEAD_FIELD_NUMBER: _ClassVar[int]
    holder: Lease
    holder_count: int
    holders: _containers.RepeatedCompositeFieldContainer[Lease]
    liveness: Liveness
    rests: _duration_pb2.Duration
    units_free: _wrappers_pb2.Int32Value
    waiters_ahead: int
    def __init__(self, holder: _Optional[_Union[Lease, _Mapping]] = ..., liveness: _Optional[_Union[Liveness, str]] = ..., waiters_ahead: _Optional[int] = ..., holders: _Optional[_Iterable[_Union[Lease, _Mapping]]] = ..., holder_count: _Optional[int] = ..., rests: _Optional[_Union[_duration_pb2.Duration, _Mapping]] = ..., units_free: _Optional[_Union[_wrappers_pb2.Int32Value, _Mapping]] = ...) -> None: ...

class CreateTokenRequest(_message.Message):
    __slots__ = ["expires", "name"]
    EXPIRES_FIELD_NUMBER: _ClassVar[int]
    NAME_FIELD_NUMBER: _ClassVar[int]
    expires: _duration_pb2.Duration
    name: str
    def __init__(self, name: _Optional[str] = ..., expires: _Optional[_Union[_duration_pb2.Duration, _Mapping]] = ...) -> None: ...

class CreateTokenResponse(_message.Message):
    __slots__ = ["expires_at", "id", "token"]
    EXPIRES_AT_FIELD_NUMBER: _ClassVar[int]
    ID_FIELD_NUMBER: _ClassVar[int]
    TOKEN_FIELD_NUMBER: _ClassVar[int]
    expires_at: _timestamp_pb2.Timestamp
    id: str
    token: str
    def __init__(self, token: _Optional[str] = ..., id: _Optional[str] = ..., expires_at: _Optional[_Union[_timestamp_pb2.Timestamp, _Mapping]] = ...) -> None: ...

class DatabaseStatus(_message.Message):
    __slots__ = ["common_path", "coordinator_id", "is_default", "name", "namespaces", "schema_version", "server", "timeline", "trouble", "waiters"]
    COMMON_PATH_FIELD_NUMBER: _ClassVar[int]
    COORDINATOR_ID_FIELD_NUMBER: _ClassVar[int]
    IS_DEFAULT_FIELD_NUMBER: _ClassVar[int]
    NAMESPACES_FIELD_NUMBER: _ClassVar[int]
    NAME_FIELD_NUMBER: _ClassVar[int]
    SCHEMA_VERSION_FIELD_NUMBER: _ClassVar[int]
    SERVER_FIELD_NUMBER: _ClassVar[int]
    TIMELINE_FIELD_NUMBER: _ClassVar[int]
    TROUBLE_FIELD_NUMBER: _ClassVar[int]
    WAITERS_FIELD_NUMBER: _ClassVar[int]
    common_path: str
    coordinator_id: str
    is_default: bool
    name: str
    namespaces: _containers.RepeatedCompositeFieldContainer[Namespace]
    schema_version: int
    server: str
    timeline: int
    trouble: str
    waiters: int
    def __init__(self, name: _Optional[str] = ..., namespaces: _Optional[_Iterable[_Union[Namespace, _Mapping]]] = ..., is_default: bool = ..., schema_version: _Optional[int] = ..., coordinator_id: _Optional[str] = ..., timeline: _Optional[int] = ..., waiters: _Optional[int] = ..., trouble: _Optional[str] = ..., server: _Optional[str] = ..., common_path: _Optional[str] = ...) -> None: ...

class DowngradeRequest(_message.Message):
    __slots__ = ["lease", "units"]
    LEASE_FIELD_NUMBER: _ClassVar[int]
    UNITS_FIELD_NUMBER: _ClassVar[int]
    lease: LeaseRef
    units: int
    def __init__(self, lease: _Optional[_Union[LeaseRef, _Mapping]] = ..., units: _Optional[int] = ...) -> None: ...

class DowngradeResponse(_message.Message):
    __slots__ = ["lease", "waited"]
    LEASE_FIELD_NUMBER: _ClassVar[int]
    WAITED_FIELD_NUMBER: _ClassVar[int]
    lease: Lease
    waited: _duration_pb2.Duration
    def __init__(self, lease: _Optional[_Union[Lease, _Mapping]] = ..., waited: _Optional[_Union[_duration_pb2.Duration, _Mapping]] = ...) -> None: ...

class ForceReleaseRequest(_message.Message):
    __slots__ = ["all", "reason", "scope", "token"]
    ALL_FIELD_NUMBER: _ClassVar[int]
    REASON_FIELD_NUMBER: _ClassVar[int]
    SCOPE_FIELD_NUMBER: _ClassVar[int]
    TOKEN_FIELD_NUMBER: _ClassVar[int]
    all: bool
    reason: str
    scope: Scope
    token: int
    def __init__(self, scope: _Optional[_Union[Scope, _Mapping]] = ..., reason: _Optional[str] = ..., token: _Optional[int] = ..., all: bool = ...) -> None: ...

class ForceReleaseResponse(_message.Message):
    __slots__ = ["lease", "leases"]
    LEASES_FIELD_NUMBER: _ClassVar[int]
    LEASE_FIELD_NUMBER: _ClassVar[int]
    lease: Lease
    leases: _containers.RepeatedCompositeFieldContainer[Lease]
    def __init__(self, lease: _Optional[_Union[Lease, _Mapping]] = ..., leases: _Optional[_Iterable[_Union[Lease, _Mapping]]] = ...) -> None: ...

class GetLeaseRequest(_message.Message):
    __slots__ = ["scope"]
    SCOPE_FIELD_NUMBER: _ClassVar[int]
    scope: Scope
    def __init__(self, scope: _Optional[_Union[Scope, _Mapping]] = ...) -> None: ...

class GetLeaseResponse(_message.Message):
    __slots__ = ["contention", "holder_count", "holders", "last", "lease"]
    CONTENTION_FIELD_NUMBER: _ClassVar[int]
    HOLDERS_FIELD_NUMBER: _ClassVar[int]
    HOLDER_COUNT_FIELD_NUMBER: _ClassVar[int]
    LAST_FIELD_NUMBER: _ClassVar[int]
    LEASE_FIELD_NUMBER: _ClassVar[int]
    contention: Contention
    holder_count: int
    holders: _containers.RepeatedCompositeFieldContainer[Lease]
    last: LastHold
    lease: Lease
    def __init__(self, lease: _Optional[_Union[Lease, _Mapping]] = ..., contention: _Optional[_Union[Contention, _Mapping]] = ..., last: _Optional[_Union[LastHold, _Mapping]] = ..., holders: _Optional[_Iterable[_Union[Lease, _Mapping]]] = ..., holder_count: _Optional[int] = ...) -> None: ...

class GetPolicyRequest(_message.Message):
    __slots__ = ["namespace"]
    NAMESPACE_FIELD_NUMBER: _ClassVar[int]
    namespace: Namespace
    def __init__(self, namespace: _Optional[_Union[Namespace, _Mapping]] = ...) -> None: ...

class GetPolicyResponse(_message.Message):
    __slots__ = ["effective", "own", "source"]
    class SourceEntry(_message.Message):
        __slots__ = ["key", "value"]
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: str
        def __init__(self, key: _Optional[str] = ..., value: _Optional[str] = ...) -> None: ...
    EFFECTIVE_FIELD_NUMBER: _ClassVar[int]
    OWN_FIELD_NUMBER: _ClassVar[int]
    SOURCE_FIELD_NUMBER: _ClassVar[int]
    effective: Policy
    own: Policy
    source: _containers.ScalarMap[str, str]
    def __init__(self, own: _Optional[_Union[Policy, _Mapping]] = ..., effective: _Optional[_Union[Policy, _Mapping]] = ..., source: _Optional[_Mapping[str, str]] = ...) -> None: ...

class GetStatusRequest(_message.Message):
    __slots__ = []
    def __init__(self) -> None: ...

class GetStatusResponse(_message.Message):
    __slots__ = ["common_path", "coordinator_id", "databases", "max_block", "schema_version", "server", "spread", "timeline", "trouble", "version", "waiters", "warning"]
    COMMON_PATH_FIELD_NUMBER: _ClassVar[int]
    COORDINATOR_ID_FIELD_NUMBER: _ClassVar[int]
    DATABASES_FIELD_NUMBER: _ClassVar[int]
    MAX_BLOCK_FIELD_NUMBER: _ClassVar[int]
    SCHEMA_VERSION_FIELD_NUMBER: _ClassVar[int]
    SERVER_FIELD_NUMBER: _ClassVar[int]
    SPREAD_FIELD_NUMBER: _ClassVar[int]
    TIMELINE_FIELD_NUMBER: _ClassVar[int]
    TROUBLE_FIELD_NUMBER: _ClassVar[int]
    VERSION_FIELD_NUMBER: _ClassVar[int]
    WAITERS_FIELD_NUMBER: _ClassVar[int]
    WARNING_FIELD_NUMBER: _ClassVar[int]
    common_path: str
    coordinator_id: str
    databases: _containers.RepeatedCompositeFieldContainer[DatabaseStatus]
    max_block: _duration_pb2.Duration
    schema_version: int
    server: str
    spread: _containers.RepeatedCompositeFieldContainer[SpreadStatus]
    timeline: int
    trouble: str
    version: str
    waiters: int
    warning: str
    def __init__(self, version: _Optional[str] = ..., schema_version: _Optional[int] = ..., coordinator_id: _Optional[str] = ..., timeline: _Optional[int] = ..., max_block: _Optional[_Union[_duration_pb2.Duration, _Mapping]] = ..., waiters: _Optional[int] = ..., trouble: _Optional[str] = ..., server: _Optional[str] = ..., databases: _Optional[_Iterable[_Union[DatabaseStatus, _Mapping]]] = ..., common_path: _Optional[str] = ..., warning: _Optional[str] = ..., spread: _Optional[_Iterable[_Union[SpreadStatus, _Mapping]]] = ...) -> None: ...

class GrantAccessRequest(_message.Message):
    __slots__ = ["namespace", "principal", "rights"]
    NAMESPACE_FIELD_NUMBER: _ClassVar[int]
    PRINCIPAL_FIELD_NUMBER: _ClassVar[int]
    RIGHTS_FIELD_NUMBER: _ClassVar[int]
    namespace: Namespace
    principal: str
    rights: _containers.RepeatedScalarFieldContainer[Right]
    def __init__(self, principal: _Optional[str] = ..., namespace: _Optional[_Union[Namespace, _Mapping]] = ..., rights: _Optional[_Iterable[_Union[Right, str]]] = ...) -> None: ...

class GrantAccessResponse(_message.Message):
    __slots__ = ["rule"]
    RULE_FIELD_NUMBER: _ClassVar[int]
    rule: AccessRule
    def __init__(self, rule: _Optional[_Union[AccessRule, _Mapping]] = ...) -> None: ...

class HandOver(_message.Message):
    __slots__ = ["answer_by", "answer_in", "asked_at", "asked_by", "principal", "reason", "refusal"]
    ANSWER_BY_FIELD_NUMBER: _ClassVar[int]
    ANSWER_IN_FIELD_NUMBER: _ClassVar[int]
    ASKED_AT_FIELD_NUMBER: _ClassVar[int]
    ASKED_BY_FIELD_NUMBER: _ClassVar[int]
    PRINCIPAL_FIELD_NUMBER: _ClassVar[int]
    REASON_FIELD_NUMBER: _ClassVar[int]
    REFUSAL_FIELD_NUMBER: _ClassVar[int]
    answer_by: _timestamp_pb2.Timestamp
    answer_in: _duration_pb2.Duration
    asked_at: _timestamp_pb2.Timestamp
    asked_by: str
    principal: str
    reason: str
    refusal: str
    def __init__(self, asked_at: _Optional[_Union[_timestamp_pb2.Timestamp, _Mapping]] = ..., asked_by: _Optional[str] = ..., principal: _Optional[str] = ..., reason: _Optional[str] = ..., answer_by: _Optional[_Union[_timestamp_pb2.Timestamp, _Mapping]] = ..., answer_in: _Optional[_Union[_duration_pb2.Duration, _Mapping]] = ..., refusal: _Optional[str] = ...) -> None: ...

class HeartbeatRequest(_message.Message):
    __slots__ = ["leases"]
    LEASES_FIELD_NUMBER: _ClassVar[int]
    leases: _containers.RepeatedCompositeFieldContainer[LeaseRef]
    def __init__(self, leases: _Optional[_Iterable[_Union[LeaseRef, _Mapping]]] = ...) -> None: ...

class HeartbeatResponse(_message.Message):
    __slots__ = ["results"]
    RESULTS_FIELD_NUMBER: _ClassVar[int]
    results: _containers.RepeatedCompositeFieldContainer[HeartbeatResult]
    def __init__(self, results: _Optional[_Iterable[_Union[HeartbeatResult, _Mapping]]] = ...) -> None: ...

class HeartbeatResult(_message.Message):
    __slots__ = ["asked", "deadline", "deadline_is_final", "end_reason", "has_slots", "heartbeats", "lease_key", "message", "outcome", "remaining", "token", "units"]
    ASKED_FIELD_NUMBER: _ClassVar[int]
    DEADLINE_FIELD_NUMBER: _ClassVar[int]
    DEADLINE_IS_FINAL_FIELD_NUMBER: _ClassVar[int]
    END_REASON_FIELD_NUMBER: _ClassVar[int]
    HAS_SLOTS_FIELD_NUMBER: _ClassVar[int]
    HEARTBEATS_FIELD_NUMBER: _ClassVar[int]
    LEASE_KEY_FIELD_NUMBER: _ClassVar[int]
    MESSAGE_FIELD_NUMBER: _ClassVar[int]
    OUTCOME_FIELD_NUMBER: _ClassVar[int]
    REMAINING_FIELD_NUMBER: _ClassVar[int]
    TOKEN_FIELD_NUMBER: _ClassVar[int]
    UNITS_FIELD_NUMBER: _ClassVar[int]
    asked: HandOver
    deadline: _timestamp_pb2.Timestamp
    deadline_is_final: bool
    end_reason: EndReason
    has_slots: bool
    heartbeats: int
    lease_key: str
    message: str
    outcome: Outcome
    remaining: _duration_pb2.Duration
    token: int
    units: int
    def __init__(self, lease_key: _Optional[str] = ..., outcome: _Optional[_Union[Outcome, str]] = ..., remaining: _Optional[_Union[_duration_pb2.Duration, _Mapping]] = ..., deadline: _Optional[_Union[_timestamp_pb2.Timestamp, _Mapping]] = ..., heartbeats: _Optional[int] = ..., message: _Optional[str] = ..., end_reason: _Optional[_Union[EndReason, str]] = ..., token: _Optional[int] = ..., units: _Optional[int] = ..., has_slots: bool = ..., deadline_is_final: bool = ..., asked: _Optional[_Union[HandOver, _Mapping]] = ...) -> None: ...

class HoldEvent(_message.Message):
    __slots__ = ["alive", "alive_sequence", "asked", "granted", "lost", "queued", "released", "renewed", "waited"]
    ALIVE_FIELD_NUMBER: _ClassVar[int]
    ALIVE_SEQUENCE_FIELD_NUMBER: _ClassVar[int]
    ASKED_FIELD_NUMBER: _ClassVar[int]
    GRANTED_FIELD_NUMBER: _ClassVar[int]
    LOST_FIELD_NUMBER: _ClassVar[int]
    QUEUED_FIELD_NUMBER: _ClassVar[int]
    RELEASED_FIELD_NUMBER: _ClassVar[int]
    RENEWED_FIELD_NUMBER: _ClassVar[int]
    WAITED_FIELD_NUMBER: _ClassVar[int]
    alive: Alive
    alive_sequence: int
    asked: HandOver
    granted: Lease
    lost: HeartbeatResult
    queued: Contention
    released: ReleaseResult
    renewed: Lease
    waited: _duration_pb2.Duration
    def __init__(self, queued: _Optional[_Union[Contention, _Mapping]] = ..., granted: _Optional[_Union[Lease, _Mapping]] = ..., renewed: _Optional[_Union[Lease, _Mapping]] = ..., lost: _Optional[_Union[HeartbeatResult, _Mapping]] = ..., released: _Optional[_Union[ReleaseResult, _Mapping]] = ..., alive: _Optional[_Union[Alive, _Mapping]] = ..., asked: _Optional[_Union[HandOver, _Mapping]] = ..., waited: _Optional[_Union[_duration_pb2.Duration, _Mapping]] = ..., alive_sequence: _Optional[int] = ...) -> None: ...

class HoldRequest(_message.Message):
    __slots__ = ["acquire", "alive", "by_ping", "refuse", "release"]
    ACQUIRE_FIELD_NUMBER: _ClassVar[int]
    ALIVE_FIELD_NUMBER: _ClassVar[int]
    BY_PING_FIELD_NUMBER: _ClassVar[int]
    REFUSE_FIELD_NUMBER: _ClassVar[int]
    RELEASE_FIELD_NUMBER: _ClassVar[int]
    acquire: AcquireRequest
    alive: Alive
    by_ping: bool
    refuse: RefuseHandOver
    release: ReleaseItem
    def __init__(self, acquire: _Optional[_Union[AcquireRequest, _Mapping]] = ..., release: _Optional[_Union[ReleaseItem, _Mapping]] = ..., alive: _Optional[_Union[Alive, _Mapping]] = ..., refuse: _Optional[_Union[RefuseHandOver, _Mapping]] = ..., by_ping: bool = ...) -> None: ...

class LastHold(_message.Message):
    __slots__ = ["end_reason", "ended_at", "error", "owner", "principal", "result", "token"]
    ENDED_AT_FIELD_NUMBER: _ClassVar[int]
    END_REASON_FIELD_NUMBER: _ClassVar[int]
    ERROR_FIELD_NUMBER: _ClassVar[int]
    OWNER_FIELD_NUMBER: _ClassVar[int]
    PRINCIPAL_FIELD_NUMBER: _ClassVar[int]
    RESULT_FIELD_NUMBER: _ClassVar[int]
    TOKEN_FIELD_NUMBER: _ClassVar[int]
    end_reason: EndReason
    ended_at: _timestamp_pb2.Timestamp
    error: str
    owner: str
    principal: str
    result: str
    token: int
    def __init__(self, token: _Optional[int] = ..., owner: _Optional[str] = ..., end_reason: _Optional[_Union[EndReason, str]] = ..., result: _Optional[str] = ..., error: _Optional[str] = ..., ended_at: _Optional[_Union[_timestamp_pb2.Timestamp, _Mapping]] = ..., principal: _Optional[str] = ...) -> None: ...

class Lease(_message.Message):
    __slots__ = ["acquired_at", "asked", "deadline", "deadline_is_final", "duration", "grace", "heartbeat_at", "heartbeats", "labels", "lease_key", "liveness", "mode", "owner", "principal", "remaining", "scope", "slots", "token", "units"]
    class LabelsEntry(_message.Message):
        __slots__ = ["key", "value"]
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: str
        def __init__(self, key: _Optional[str] = ..., value: _Optional[str] = ...) -> None: ...
    ACQUIRED_AT_FIELD_NUMBER: _ClassVar[int]
    ASKED_FIELD_NUMBER: _ClassVar[int]
    DEADLINE_FIELD_NUMBER: _ClassVar[int]
    DEADLINE_IS_FINAL_FIELD_NUMBER: _ClassVar[int]
    DURATION_FIELD_NUMBER: _ClassVar[int]
    GRACE_FIELD_NUMBER: _ClassVar[int]
    HEARTBEATS_FIELD_NUMBER: _ClassVar[int]
    HEARTBEAT_AT_FIELD_NUMBER: _ClassVar[int]
    LABELS_FIELD_NUMBER: _ClassVar[int]
    LEASE_KEY_FIELD_NUMBER: _ClassVar[int]
    LIVENESS_FIELD_NUMBER: _ClassVar[int]
    MODE_FIELD_NUMBER: _ClassVar[int]
    OWNER_FIELD_NUMBER: _ClassVar[int]
    PRINCIPAL_FIELD_NUMBER: _ClassVar[int]
    REMAINING_FIELD_NUMBER: _ClassVar[int]
    SCOPE_FIELD_NUMBER: _ClassVar[int]
    SLOTS_FIELD_NUMBER: _ClassVar[int]
    TOKEN_FIELD_NUMBER: _ClassVar[int]
    UNITS_FIELD_NUMBER: _ClassVar[int]
    acquired_at: _timestamp_pb2.Timestamp
    asked: HandOver
    deadline: _timestamp_pb2.Timestamp
    deadline_is_final: bool
    duration: _duration_pb2.Duration
    grace: _duration_pb2.Duration
    heartbeat_at: _timestamp_pb2.Timestamp
    heartbeats: int
    labels: _containers.ScalarMap[str, str]
    lease_key: str
    liveness: Liveness
    mode: Mode
    owner: str
    principal: str
    remaining: _duration_pb2.Duration
    scope: Scope
    slots: _containers.RepeatedScalarFieldContainer[int]
    token: int
    units: int
    def __init__(self, scope: _Optional[_Union[Scope, _Mapping]] = ..., lease_key: _Optional[str] = ..., token: _Optional[int] = ..., owner: _Optional[str] = ..., duration: _Optional[_Union[_duration_pb2.Duration, _Mapping]] = ..., remaining: _Optional[_Union[_duration_pb2.Duration, _Mapping]] = ..., deadline: _Optional[_Union[_timestamp_pb2.Timestamp, _Mapping]] = ..., acquired_at: _Optional[_Union[_timestamp_pb2.Timestamp, _Mapping]] = ..., heartbeats: _Optional[int] = ..., heartbeat_at: _Optional[_Union[_timestamp_pb2.Timestamp, _Mapping]] = ..., labels: _Optional[_Mapping[str, str]] = ..., liveness: _Optional[_Union[Liveness, str]] = ..., grace: _Optional[_Union[_duration_pb2.Duration, _Mapping]] = ..., principal: _Optional[str] = ..., mode: _Optional[_Union[Mode, str]] = ..., units: _Optional[int] = ..., slots: _Optional[_Iterable[int]] = ..., deadline_is_final: bool = ..., asked: _Optional[_Union[HandOver, _Mapping]] = ...) -> None: ...

class LeaseEvent(_message.Message):
    __slots__ = ["end_reason", "error", "lease", "reason", "result", "type"]
    class Type(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
        __slots__ = []
    END_REASON_FIELD_NUMBER: _ClassVar[int]
    ERROR_FIELD_NUMBER: _ClassVar[int]
    LEASE_FIELD_NUMBER: _ClassVar[int]
    REASON_FIELD_NUMBER: _ClassVar[int]
    RESULT_FIELD_NUMBER: _ClassVar[int]
    TYPE_ACQUIRED: LeaseEvent.Type
    TYPE_ALIVE: LeaseEvent.Type
    TYPE_DOWNGRADED: LeaseEvent.Type
    TYPE_EXPIRED: LeaseEvent.Type
    TYPE_FIELD_NUMBER: _ClassVar[int]
    TYPE_FORCED: LeaseEvent.Type
    TYPE_INITIAL: LeaseEvent.Type
    TYPE_RELEASED: LeaseEvent.Type
    TYPE_SYNCED: LeaseEvent.Type
    TYPE_UNSPECIFIED: LeaseEvent.Type
    end_reason: EndReason
    error: str
    lease: Lease
    reason: str
    result: str
    type: LeaseEvent.Type
    def __init__(self, type: _Optional[_Union[LeaseEvent.Type, str]] = ..., lease: _Optional[_Union[Lease, _Mapping]] = ..., reason: _Optional[str] = ..., end_reason: _Optional[_Union[EndReason, str]] = ..., result: _Optional[str] = ..., error: _Optional[str] = ...) -> None: ...

class LeaseRef(_message.Message):
    __slots__ = ["lease_key", "scope"]
    LEASE_KEY_FIELD_NUMBER: _ClassVar[int]
    SCOPE_FIELD_NUMBER: _ClassVar[int]
    lease_key: str
    scope: Scope
    def __init__(self, scope: _Optional[_Union[Scope, _Mapping]] = ..., lease_key: _Optional[str] = ...) -> None: ...

class ListAccessRequest(_message.Message):
    __slots__ = ["page_size", "page_token"]
    PAGE_SIZE_FIELD_NUMBER: _ClassVar[int]
    PAGE_TOKEN_FIELD_NUMBER: _ClassVar[int]
    page_size: int
    page_token: str
    def __init__(self, page_size: _Optional[int] = ..., page_token: _Optional[str] = ...) -> None: ...

class ListAccessResponse(_message.Message):
    __slots__ = ["next_page_token", "rules"]
    NEXT_PAGE_TOKEN_FIELD_NUMBER: _ClassVar[int]
    RULES_FIELD_NUMBER: _ClassVar[int]
    next_page_token: str
    rules: _containers.RepeatedCompositeFieldContainer[AccessRule]
    def __init__(self, rules: _Optional[_Iterable[_Union[AccessRule, _Mapping]]] = ..., next_page_token: _Optional[str] = ...) -> None: ...

class ListLeasesRequest(_message.Message):
    __slots__ = ["include_children", "longer_than", "namespace", "owner", "page_size", "page_token", "search", "state"]
    INCLUDE_CHILDREN_FIELD_NUMBER: _ClassVar[int]
    LONGER_THAN_FIELD_NUMBER: _ClassVar[int]
    NAMESPACE_FIELD_NUMBER: _ClassVar[int]
    OWNER_FIELD_NUMBER: _ClassVar[int]
    PAGE_SIZE_FIELD_NUMBER: _ClassVar[int]
    PAGE_TOKEN_FIELD_NUMBER: _ClassVar[int]
    SEARCH_FIELD_NUMBER: _ClassVar[int]
    STATE_FIELD_NUMBER: _ClassVar[int]
    include_children: bool
    longer_than: _duration_pb2.Duration
    namespace: _containers.RepeatedScalarFieldContainer[str]
    owner: str
    page_size: int
    page_token: str
    search: str
    state: LeaseState
    def __init__(self, namespace: _Optional[_Iterable[str]] = ..., include_children: bool = ..., page_size: _Optional[int] = ..., page_token: _Optional[str] = ..., owner: _Optional[str] = ..., search: _Optional[str] = ..., state: _Optional[_Union[LeaseState, str]] = ..., longer_than: _Optional[_Union[_duration_pb2.Duration, _Mapping]] = ...) -> None: ...

class ListLeasesResponse(_message.Message):
    __slots__ = ["leases", "next_page_token", "partial"]
    LEASES_FIELD_NUMBER: _ClassVar[int]
    NEXT_PAGE_TOKEN_FIELD_NUMBER: _ClassVar[int]
    PARTIAL_FIELD_NUMBER: _ClassVar[int]
    leases: _containers.RepeatedCompositeFieldContainer[Lease]
    next_page_token: str
    partial: bool
    def __init__(self, leases: _Optional[_Iterable[_Union[Lease, _Mapping]]] = ..., next_page_token: _Optional[str] = ..., partial: bool = ...) -> None: ...

class ListPoliciesRequest(_message.Message):
    __slots__ = ["page_size", "page_token"]
    PAGE_SIZE_FIELD_NUMBER: _ClassVar[int]
    PAGE_TOKEN_FIELD_NUMBER: _ClassVar[int]
    page_size: int
    page_token: str
    def __init__(self, page_size: _Optional[int] = ..., page_token: _Optional[str] = ...) -> None: ...

class ListPoliciesResponse(_message.Message):
    __slots__ = ["next_page_token", "policies"]
    NEXT_PAGE_TOKEN_FIELD_NUMBER: _ClassVar[int]
    POLICIES_FIELD_NUMBER: _ClassVar[int]
    next_page_token: str
    policies: _containers.RepeatedCompositeFieldContainer[Policy]
    def __init__(self, policies: _Optional[_Iterable[_Union[Policy, _Mapping]]] = ..., next_page_token: _Optional[str] = ...) -> None: ...

class ListTokensRequest(_message.Message):
    __slots__ = ["page_size", "page_token"]
    PAGE_SIZE_FIELD_NUMBER: _ClassVar[int]
    PAGE_TOKEN_FIELD_NUMBER: _ClassVar[int]
    page_size: int
    page_token: str
    def __init__(self, page_size: _Optional[int] = ..., page_token: _Optional[str] = ...) -> None: ...

class ListTokensResponse(_message.Message):
    __slots__ = ["next_page_token", "tokens"]
    NEXT_PAGE_TOKEN_FIELD_NUMBER: _ClassVar[int]
    TOKENS_FIELD_NUMBER: _ClassVar[int]
    next_page_token: str
    tokens: _containers.RepeatedCompositeFieldContainer[AccessToken]
    def __init__(self, tokens: _Optional[_Iterable[_Union[AccessToken, _Mapping]]] = ..., next_page_token: _Optional[str] = ...) -> None: ...

class Namespace(_message.Message):
    __slots__ = ["segments"]
    SEGMENTS_FIELD_NUMBER: _ClassVar[int]
    segments: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, segments: _Optional[_Iterable[str]] = ...) -> None: ...

class Policy(_message.Message):
    __slots__ = ["ageing", "at_least", "capacity", "dead_after", "end_at_max_hold", "expiry", "free_retention", "frozen", "grace", "hand_over_grace", "history", "history_retention", "hook_timeout", "max_duration", "max_hold", "max_leases", "max_priority", "max_reap_failures", "max_waiters", "min_duration", "namespace", "reaper"]
    class Expiry(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
        __slots__ = []
    class Reaper(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
        __slots__ = []
    AGEING_FIELD_NUMBER: _ClassVar[int]
    AT_LEAST_FIELD_NUMBER: _ClassVar[int]
    CAPACITY_FIELD_NUMBER: _ClassVar[int]
    DEAD_AFTER_FIELD_NUMBER: _ClassVar[int]
    END_AT_MAX_HOLD_FIELD_NUMBER: _ClassVar[int]
    EXPIRY_FIELD_NUMBER: _ClassVar[int]
    EXPIRY_MANUAL: Policy.Expiry
    EXPIRY_REAP: Policy.Expiry
    EXPIRY_TAKEOVER: Policy.Expiry
    EXPIRY_UNSPECIFIED: Policy.Expiry
    FREE_RETENTION_FIELD_NUMBER: _ClassVar[int]
    FROZEN_FIELD_NUMBER: _ClassVar[int]
    GRACE_FIELD_NUMBER: _ClassVar[int]
    HAND_OVER_GRACE_FIELD_NUMBER: _ClassVar[int]
    HISTORY_FIELD_NUMBER: _ClassVar[int]
    HISTORY_RETENTION_FIELD_NUMBER: _ClassVar[int]
    HOOK_TIMEOUT_FIELD_NUMBER: _ClassVar[int]
    MAX_DURATION_FIELD_NUMBER: _ClassVar[int]
    MAX_HOLD_FIELD_NUMBER: _ClassVar[int]
    MAX_LEASES_FIELD_NUMBER: _ClassVar[int]
    MAX_PRIORITY_FIELD_NUMBER: _ClassVar[int]
    MAX_REAP_FAILURES_FIELD_NUMBER: _ClassVar[int]
    MAX_WAITERS_FIELD_NUMBER: _ClassVar[int]
    MIN_DURATION_FIELD_NUMBER: _ClassVar[int]
    NAMESPACE_FIELD_NUMBER: _ClassVar[int]
    REAPER_AUTO: Policy.Reaper
    REAPER_EXTERNAL: Policy.Reaper
    REAPER_FIELD_NUMBER: _ClassVar[int]
    REAPER_UNSPECIFIED: Policy.Reaper
    ageing: _duration_pb2.Duration
    at_least: _duration_pb2.Duration
    capacity: _wrappers_pb2.Int32Value
    dead_after: _duration_pb2.Duration
    end_at_max_hold: _wrappers_pb2.BoolValue
    expiry: Policy.Expiry
    free_retention: _duration_pb2.Duration
    frozen: _wrappers_pb2.BoolValue
    grace: _duration_pb2.Duration
    hand_over_grace: _duration_pb2.Duration
    history: _wrappers_pb2.BoolValue
    history_retention: _duration_pb2.Duration
    hook_timeout: _duration_pb2.Duration
    max_duration: _duration_pb2.Duration
    max_hold: _duration_pb2.Duration
    max_leases: _wrappers_pb2.Int64Value
    max_priority: _wrappers_pb2.Int32Value
    max_reap_failures: _wrappers_pb2.Int32Value
    max_waiters: _wrappers_pb2.Int64Value
    min_duration: _duration_pb2.Duration
    namespace: Namespace
    reaper: Policy.Reaper
    def __init__(self, namespace: _Optional[_Union[Namespace, _Mapping]] = ..., min_duration: _Optional[_Union[_duration_pb2.Duration, _Mapping]] = ..., max_duration: _Optional[_Union[_duration_pb2.Duration, _Mapping]] = ..., grace: _Optional[_Union[_duration_pb2.Duration, _Mapping]] = ..., max_hold: _Optional[_Union[_duration_pb2.Duration, _Mapping]] = ..., dead_after: _Optional[_Union[_duration_pb2.Duration, _Mapping]] = ..., expiry: _Optional[_Union[Policy.Expiry, str]] = ..., reaper: _Optional[_Union[Policy.Reaper, str]] = ..., frozen: _Optional[_Union[_wrappers_pb2.BoolValue, _Mapping]] = ..., max_leases: _Optional[_Union[_wrappers_pb2.Int64Value, _Mapping]] = ..., max_waiters: _Optional[_Union[_wrappers_pb2.Int64Value, _Mapping]] = ..., history: _Optional[_Union[_wrappers_pb2.BoolValue, _Mapping]] = ..., max_reap_failures: _Optional[_Union[_wrappers_pb2.Int32Value, _Mapping]] = ..., hook_timeout: _Optional[_Union[_duration_pb2.Duration, _Mapping]] = ..., free_retention: _Optional[_Union[_duration_pb2.Duration, _Mapping]] = ..., history_retention: _Optional[_Union[_duration_pb2.Duration, _Mapping]] = ..., capacity: _Optional[_Union[_wrappers_pb2.Int32Value, _Mapping]] = ..., at_least: _Optional[_Union[_duration_pb2.Duration, _Mapping]] = ..., end_at_max_hold: _Optional[_Union[_wrappers_pb2.BoolValue, _Mapping]] = ..., max_priority: _Optional[_Union[_wrappers_pb2.Int32Value, _Mapping]] = ..., ageing: _Optional[_Union[_duration_pb2.Duration, _Mapping]] = ..., hand_over_grace: _Optional[_Union[_duration_pb2.Duration, _Mapping]] = ...) -> None: ...

class ReapFailure(_message.Message):
    __slots__ = ["error", "lease", "next_try_at", "reap_failures"]
    ERROR_FIELD_NUMBER: _ClassVar[int]
    LEASE_FIELD_NUMBER: _ClassVar[int]
    NEXT_TRY_AT_FIELD_NUMBER: _ClassVar[int]
    REAP_FAILURES_FIELD_NUMBER: _ClassVar[int]
    error: str
    lease: Lease
    next_try_at: _timestamp_pb2.Timestamp
    reap_failures: int
    def __init__(self, lease: _Optional[_Union[Lease, _Mapping]] = ..., error: _Optional[str] = ..., reap_failures: _Optional[int] = ..., next_try_at: _Optional[_Union[_timestamp_pb2.Timestamp, _Mapping]] = ...) -> None: ...

class ReapRequest(_message.Message):
    __slots__ = ["include_children", "key", "max", "namespaces"]
    INCLUDE_CHILDREN_FIELD_NUMBER: _ClassVar[int]
    KEY_FIELD_NUMBER: _ClassVar[int]
    MAX_FIELD_NUMBER: _ClassVar[int]
    NAMESPACES_FIELD_NUMBER: _ClassVar[int]
    include_children: bool
    key: str
    max: int
    namespaces: _containers.RepeatedCompositeFieldContainer[Namespace]
    def __init__(self, namespaces: _Optional[_Iterable[_Union[Namespace, _Mapping]]] = ..., include_children: bool = ..., max: _Optional[int] = ..., key: _Optional[str] = ...) -> None: ...

class ReapResponse(_message.Message):
    __slots__ = ["failures", "more", "reaped"]
    FAILURES_FIELD_NUMBER: _ClassVar[int]
    MORE_FIELD_NUMBER: _ClassVar[int]
    REAPED_FIELD_NUMBER: _ClassVar[int]
    failures: _containers.RepeatedCompositeFieldContainer[ReapFailure]
    more: bool
    reaped: int
    def __init__(self, reaped: _Optional[int] = ..., failures: _Optional[_Iterable[_Union[ReapFailure, _Mapping]]] = ..., more: bool = ...) -> None: ...

class RefuseHandOver(_message.Message):
    __slots__ = ["reason"]
    REASON_FIELD_NUMBER: _ClassVar[int]
    reason: str
    def __init__(self, reason: _Optional[str] = ...) -> None: ...

class RefuseHandOverRequest(_message.Message):
    __slots__ = ["lease", "reason"]
    LEASE_FIELD_NUMBER: _ClassVar[int]
    REASON_FIELD_NUMBER: _ClassVar[int]
    lease: LeaseRef
    reason: str
    def __init__(self, lease: _Optional[_Union[LeaseRef, _Mapping]] = ..., reason: _Optional[str] = ...) -> None: ...

class RefuseHandOverResponse(_message.Message):
    __slots__ = ["asked"]
    ASKED_FIELD_NUMBER: _ClassVar[int]
    asked: HandOver
    def __init__(self, asked: _Optional[_Union[HandOver, _Mapping]] = ...) -> None: ...

class ReleaseItem(_message.Message):
    __slots__ = ["failure", "lease", "success"]
    FAILURE_FIELD_NUMBER: _ClassVar[int]
    LEASE_FIELD_NUMBER: _ClassVar[int]
    SUCCESS_FIELD_NUMBER: _ClassVar[int]
    failure: str
    lease: LeaseRef
    success: str
    def __init__(self, lease: _Optional[_Union[LeaseRef, _Mapping]] = ..., success: _Optional[str] = ..., failure: _Optional[str] = ...) -> None: ...

class ReleaseRequest(_message.Message):
    __slots__ = ["items"]
    ITEMS_FIELD_NUMBER: _ClassVar[int]
    items: _containers.RepeatedCompositeFieldContainer[ReleaseItem]
    def __init__(self, items: _Optional[_Iterable[_Union[ReleaseItem, _Mapping]]] = ...) -> None: ...

class ReleaseResponse(_message.Message):
    __slots__ = ["results"]
    RESULTS_FIELD_NUMBER: _ClassVar[int]
    results: _containers.RepeatedCompositeFieldContainer[ReleaseResult]
    def __init__(self, results: _Optional[_Iterable[_Union[ReleaseResult, _Mapping]]] = ...) -> None: ...

class ReleaseResult(_message.Message):
    __slots__ = ["end_reason", "lease_key", "message", "outcome"]
    END_REASON_FIELD_NUMBER: _ClassVar[int]
    LEASE_KEY_FIELD_NUMBER: _ClassVar[int]
    MESSAGE_FIELD_NUMBER: _ClassVar[int]
    OUTCOME_FIELD_NUMBER: _ClassVar[int]
    end_reason: EndReason
    lease_key: str
    message: str
    outcome: Outcome
    def __init__(self, lease_key: _Optional[str] = ..., outcome: _Optional[_Union[Outcome, str]] = ..., message: _Optional[str] = ..., end_reason: _Optional[_Union[EndReason, str]] = ...) -> None: ...

class RevokeAccessRequest(_message.Message):
    __slots__ = ["namespace", "principal", "rights"]
    NAMESPACE_FIELD_NUMBER: _ClassVar[int]
    PRINCIPAL_FIELD_NUMBER: _ClassVar[int]
    RIGHTS_FIELD_NUMBER: _ClassVar[int]
    namespace: Namespace
    principal: str
    rights: _containers.RepeatedScalarFieldContainer[Right]
    def __init__(self, principal: _Optional[str] = ..., namespace: _Optional[_Union[Namespace, _Mapping]] = ..., rights: _Optional[_Iterable[_Union[Right, str]]] = ...) -> None: ...

class RevokeAccessResponse(_message.Message):
    __slots__ = ["rule"]
    RULE_FIELD_NUMBER: _ClassVar[int]
    rule: AccessRule
    def __init__(self, rule: _Optional[_Union[AccessRule, _Mapping]] = ...) -> None: ...

class RevokeTokenRequest(_message.Message):
    __slots__ = ["name_or_id"]
    NAME_OR_ID_FIELD_NUMBER: _ClassVar[int]
    name_or_id: str
    def __init__(self, name_or_id: _Optional[str] = ...) -> None: ...

class RevokeTokenResponse(_message.Message):
    __slots__ = ["revoked"]
    REVOKED_FIELD_NUMBER: _ClassVar[int]
    revoked: int
    def __init__(self, revoked: _Optional[int] = ...) -> None: ...

class Scope(_message.Message):
    __slots__ = ["key", "namespace"]
    KEY_FIELD_NUMBER: _ClassVar[int]
    NAMESPACE_FIELD_NUMBER: _ClassVar[int]
    key: str
    namespace: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, namespace: _Optional[_Iterable[str]] = ..., key: _Optional[str] = ...) -> None: ...

class SetPolicyRequest(_message.Message):
    __slots__ = ["policy", "update_mask"]
    POLICY_FIELD_NUMBER: _ClassVar[int]
    UPDATE_MASK_FIELD_NUMBER: _ClassVar[int]
    policy: Policy
    update_mask: _field_mask_pb2.FieldMask
    def __init__(self, policy: _Optional[_Union[Policy, _Mapping]] = ..., update_mask: _Optional[_Union[_field_mask_pb2.FieldMask, _Mapping]] = ...) -> None: ...

class SetPolicyResponse(_message.Message):
    __slots__ = ["effective"]
    EFFECTIVE_FIELD_NUMBER: _ClassVar[int]
    effective: Policy
    def __init__(self, effective: _Optional[_Union[Policy, _Mapping]] = ...) -> None: ...

class SpreadStatus(_message.Message):
    __slots__ = ["database", "namespace", "slots"]
    DATABASE_FIELD_NUMBER: _ClassVar[int]
    NAMESPACE_FIELD_NUMBER: _ClassVar[int]
    SLOTS_FIELD_NUMBER: _ClassVar[int]
    database: str
    namespace: Namespace
    slots: int
    def __init__(self, namespace: _Optional[_Union[Namespace, _Mapping]] = ..., database: _Optional[str] = ..., slots: _Optional[int] = ...) -> None: ...

class WatchLeasesRequest(_message.Message):
    __slots__ = ["alive", "include_children", "include_initial", "key", "namespace"]
    ALIVE_FIELD_NUMBER: _ClassVar[int]
    INCLUDE_CHILDREN_FIELD_NUMBER: _ClassVar[int]
    INCLUDE_INITIAL_FIELD_NUMBER: _ClassVar[int]
    KEY_FIELD_NUMBER: _ClassVar[int]
    NAMESPACE_FIELD_NUMBER: _ClassVar[int]
    alive: bool
    include_children: bool
    include_initial: bool
    key: str
    namespace: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, namespace: _Optional[_Iterable[str]] = ..., include_children: bool = ..., include_initial: bool = ..., key: _Optional[str] = ..., alive: bool = ...) -> None: ...

class Mode(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = []

class Liveness(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = []

class Outcome(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = []

class EndReason(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = []

class LeaseState(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = []

class Right(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = []
