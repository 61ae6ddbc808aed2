"""What the NVIDIA driver's Xid codes mean and what to do about them.

Promises: a table and nothing else. Source: NVIDIA, "XID Errors" (GPU Deployment and Management documentation, r570).
`fault` says whether the code alone speaks of the hardware: `yes`, `maybe` (some sub-codes do), or `no`
(an application's own error, or the consequence of another one).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Literal


@dataclass(frozen=True, slots=True)
class Xid:
    meaning: str
    action: str
    fault: Literal["yes", "maybe", "no"] = "yes"


_APPLICATION = (
    "look at the program first: an illegal access or a bad kernel; at the GPU only if other programs fail there too"
)
_RESET = "drain the node and reset the GPU"
_DIAGNOSE = "drain the node, reset the GPU, run dcgmi diag -r 3; replace it if the error returns"
_FABRIC = "check NVLink cables, switches and the fabric manager; reset the GPUs of that link"

XIDS: Mapping[int, Xid] = MappingProxyType(
    {
        8: Xid("GPU stopped processing", _APPLICATION, "maybe"),
        13: Xid("graphics engine exception", _APPLICATION, "no"),
        31: Xid("GPU memory page fault", _APPLICATION, "no"),
        32: Xid("invalid or corrupted push buffer stream", "check PCIe; then driver and program", "maybe"),
        38: Xid("driver firmware error", "update or reinstall the driver", "maybe"),
        43: Xid("GPU stopped processing: a program faulted", _APPLICATION, "no"),
        45: Xid("preemptive cleanup after an earlier error", "find the first Xid or error before it", "no"),
        48: Xid("double-bit ECC error", _RESET + "; look at remapped rows"),
        61: Xid("internal micro-controller warning", _DIAGNOSE),
        62: Xid("internal micro-controller halt", _DIAGNOSE),
        63: Xid(
            "row remapping or page retirement recorded", "reset the GPU at the next chance, so that it takes effect"
        ),
        64: Xid("row remapping or page retirement failed", "drain the node; replace the GPU"),
        68: Xid("video decoder exception", _APPLICATION, "no"),
        69: Xid("graphics engine class error", _APPLICATION, "no"),
        74: Xid("NVLink error", _FABRIC),
        79: Xid("GPU has fallen off the bus", "drain the node, power-cycle it; reseat the GPU, check power and PCIe"),
        92: Xid("high rate of single-bit ECC errors", _DIAGNOSE),
        94: Xid("contained ECC error", "restart the program that was hit; reset the GPU at the next chance"),
        95: Xid("uncontained ECC error", _RESET + "; every program on it is lost"),
        109: Xid("context switch timeout", _DIAGNOSE, "maybe"),
        119: Xid("GSP RPC timeout", "reset the GPU; update the driver or disable GSP if it returns"),
        120: Xid("GSP error", "reset the GPU; update the driver if it returns"),
        121: Xid("C2C link corrected error", "reset at the next chance", "maybe"),
        136: Xid("NVLink training failed", _FABRIC),
        137: Xid("NVLink remote access error", "look for the first error on the peer GPU", "maybe"),
        140: Xid("unrecovered ECC error", _RESET),
        143: Xid("GPU initialisation failed", _DIAGNOSE),
        144: Xid("NVLink: SAW error", _FABRIC, "maybe"),
        145: Xid("NVLink: RLW error", _FABRIC, "maybe"),
        146: Xid("NVLink: TLW error", _FABRIC, "maybe"),
        147: Xid("NVLink: TREX error", _FABRIC, "maybe"),
        148: Xid("NVLink: NVLPW error", _FABRIC, "maybe"),
        149: Xid("NVLink: NETIR error", _FABRIC, "maybe"),
        150: Xid("NVLink: MSE error", _FABRIC, "maybe"),
        154: Xid("GPU recovery action changed", "do what the line says (reset, reboot or drain)"),
        155: Xid("NVLink: software-defined error", _FABRIC, "maybe"),
        156: Xid("resource retirement event", "reset the GPU at the next chance"),
        157: Xid("resource retirement failed", "drain the node; replace the GPU"),
        158: Xid("GPU fatal timeout", _DIAGNOSE),
        171: Xid("details of a DRAM ECC error (with 48)", _RESET),
        172: Xid("details of an SRAM ECC error (with 48)", _RESET),
    }
)

UNKNOWN = Xid("not in the table", "look it up in NVIDIA's Xid catalogue; run dcgmi diag", "maybe")


def of(code: int) -> Xid:
    """What is known of the code."""
    return XIDS.get(code, UNKNOWN)
