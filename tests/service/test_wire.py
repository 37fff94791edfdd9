"""The contract with clients of the original daemon: numbers, types and names, from its description.

A line of the tables is what a client compiled years ago will send. Whoever changes the .proto so that a line
fails breaks those clients. Everything of ours has a number from 40 up.
"""

import pytest
from google.protobuf.descriptor import FieldDescriptor as F

from cuzkd.service.v1 import proving_pb2 as pb

MESSAGES = {
    "SubmitProofRequest": """1 request_id string; 2 proof_kind ProofKind; 3 sector_size uint64; 4
        registered_proof uint64; 5 priority Priority; 10 vanilla_proof bytes; 11 vanilla_proofs repeated
        bytes; 20 sector_number uint64; 21 miner_id uint64; 22 randomness bytes; 23 partition_index
        uint32; 30 comm_r_old bytes; 31 comm_r_new bytes; 32 comm_d_new bytes""",
    "SubmitProofResponse": "1 job_id string; 2 queue_position uint32; 3 assigned_gpu string",
    "AwaitProofRequest": "1 job_id string; 2 timeout_ms uint64",
    "AwaitProofResponse": """1 job_id string; 2 status Status; 3 proof bytes; 4 error_message string; 10
        queue_wait_ms uint64; 11 srs_load_ms uint64; 12 synthesis_ms uint64; 13 gpu_compute_ms uint64; 14
        total_ms uint64""",
    "ProveRequest": "1 submit SubmitProofRequest",
    "ProveResponse": "1 result AwaitProofResponse",
    "CancelProofRequest": "1 job_id string",
    "CancelProofResponse": "1 was_running bool",
    "GetStatusRequest": "",
    "GetStatusResponse": """1 gpus repeated GPUStatus; 2 loaded_srs repeated SRSStatus; 3 queues repeated
        QueueStatus; 4 total_proofs_completed uint64; 5 total_proofs_failed uint64; 6 uptime_seconds
        uint64; 7 pinned_memory_bytes uint64; 8 pinned_memory_limit_bytes uint64""",
    "GPUStatus": """1 ordinal uint32; 2 name string; 3 vram_total_bytes uint64; 4 vram_free_bytes uint64;
        5 current_job_id string; 6 current_proof_kind string""",
    "SRSStatus": "1 circuit_id string; 2 tier Tier; 3 size_bytes uint64; 4 ref_count uint32",
    "QueueStatus": "1 proof_kind string; 2 pending uint32; 3 in_progress uint32",
    "PreloadSrsRequest": "1 circuit_id string",
    "PreloadSrsResponse": "1 already_loaded bool; 2 load_time_ms uint64",
    "EvictSrsRequest": "1 circuit_id string",
    "EvictSrsResponse": "1 was_loaded bool; 2 freed_bytes uint64",
    "GetMetricsRequest": "",
    "GetMetricsResponse": "1 prometheus_text string",
}
ENUMS = {
    "ProofKind": "PROOF_KIND_UNSPECIFIED POREP_SEAL_COMMIT SNAP_DEALS_UPDATE "
    "WINDOW_POST_PARTITION WINNING_POST",
    "Priority": "PRIORITY_UNSPECIFIED LOW NORMAL HIGH CRITICAL",
    "AwaitProofResponse.Status": "UNKNOWN COMPLETED FAILED CANCELLED TIMEOUT",
    "SRSStatus.Tier": "HOT WARM COLD",
}
RPCS = {
    "SubmitProof": ("SubmitProofRequest", "SubmitProofResponse"),
    "AwaitProof": ("AwaitProofRequest", "AwaitProofResponse"),
    "Prove": ("ProveRequest", "ProveResponse"),
    "CancelProof": ("CancelProofRequest", "CancelProofResponse"),
    "GetStatus": ("GetStatusRequest", "GetStatusResponse"),
    "GetMetrics": ("GetMetricsRequest", "GetMetricsResponse"),
    "PreloadSRS": ("PreloadSrsRequest", "PreloadSrsResponse"),
    "EvictSRS": ("EvictSrsRequest", "EvictSrsResponse"),
}
SCALARS = {F.TYPE_STRING: "string", F.TYPE_BYTES: "bytes", F.TYPE_UINT64: "uint64", F.TYPE_UINT32: "uint32",
           F.TYPE_BOOL: "bool", F.TYPE_DOUBLE: "double"}  # fmt: skip


def described(field):
    """A field as the tables spell it."""
    kind = SCALARS.get(field.type) or (field.message_type or field.enum_type).name
    return f"{field.number} {field.name} {'repeated ' if field.is_repeated else ''}{kind}"


@pytest.mark.parametrize("name", MESSAGES)
def test_messages_keep_every_number_and_type(name):
    wanted = {" ".join(line.split()) for line in MESSAGES[name].split(";") if line.strip()}
    fields = pb.DESCRIPTOR.message_types_by_name[name].fields
    assert {described(field) for field in fields if field.number < 40} == wanted
    assert all(field.containing_oneof is None for field in fields), "a oneof is another contract"
    assert not any(field.has_presence and field.message_type is None for field in fields), "no optional"


@pytest.mark.parametrize("name", ENUMS)
def test_enums_keep_every_number(name):
    outer, _, inner = name.partition(".")
    if inner:
        enum = pb.DESCRIPTOR.message_types_by_name[outer].enum_types_by_name[inner]
    else:
        enum = pb.DESCRIPTOR.enum_types_by_name[outer]
    assert {value.number: value.name for value in enum.values} == dict(enumerate(ENUMS[name].split()))


def test_the_service_keeps_every_rpc():
    assert pb.DESCRIPTOR.package == "cuzk.v1"
    methods = pb.DESCRIPTOR.services_by_name["ProvingEngine"].methods_by_name
    for name, (request, response) in RPCS.items():
        method = methods[name]
        assert (method.input_type.name, method.output_type.name) == (request, response)
        assert not method.client_streaming and not method.server_streaming


def test_packed_bytes_of_a_known_request():
    """Written by hand from the wire format: tag = number << 3 | type."""
    raw = bytes.fromhex(
        "0a0178 1001 188080808008 2003 2804 520170 5a0171 a00105 a80106 b2010172 b80107"
        "f2010173 fa010174 82020175"
    )
    got = pb.SubmitProofRequest.FromString(raw)
    assert got == pb.SubmitProofRequest(
        request_id="x", proof_kind=1, sector_size=2 << 30, registered_proof=3, priority=4,
        vanilla_proof=b"p", vanilla_proofs=[b"q"], sector_number=5, miner_id=6, randomness=b"r",
        partition_index=7, comm_r_old=b"s", comm_r_new=b"t", comm_d_new=b"u",
    )  # fmt: skip
