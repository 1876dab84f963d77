"""Nsight Compute's table, in the form that it really has, and where it goes in a record."""
import csv
import io

import pytest

from harness import counters

RANGE = "thread Domain:Push/Pop_Range:PL_Type:PL_Value:CLR_Type:Color:Msg_Type:Msg"
NESTED = "Id:Domain:Start/Stop_Range:PL_Type:PL_Value:CLR_Type:Color:Msg_Type:Msg"
LOG = "==WARNING== Note: Running with unmodified GPU clocks.\n==PROF== Connected to process 609 (/usr/bin/python3)\n" \
      "==PROF== Disconnected from process 609\n"
ROWS = [("measure:0", "add<half>(int, T1)", "134,279,680", "116,706,560", "18", "119,013,376", "71.72", "32.16", "1,500", "3", "5", "7"),
        ("measure:0", 'mul "quoted", twice', "0", "1,024", "32", "n/a", "100", "0.5", "n/a", "n/a", "1", "2"),
        ("measure:12", "triton_poi_fused_0", "1", "2", "16", "", "5", "6", "65,536", "1", "1,000", "10")]


def table(*rows) -> str:
    """ncu's CSV: what it logs, the header, a row of units, then a row a kernel, numbers with separators."""
    text = io.StringIO(LOG)
    text.seek(0, io.SEEK_END)
    write = csv.writer(text, quoting=csv.QUOTE_ALL, lineterminator="\n").writerow
    write(["ID", "Process ID", RANGE, NESTED, "Kernel Name", *counters.KERNEL_METRICS])
    write(["", "", "", "", "", "byte", "byte", "register/thread", "inst", "%", "%", "ns", "inst", "inst", "inst"])
    for number, (label, kernel, *values) in enumerate(rows):
        write([number, "609", f'609  "<default domain>:{label}:none:none:none:none:none:none" ', "", kernel, *values])
    return text.getvalue()


def test_counters_parse_reads_kernels_by_range_and_in_order():
    assert counters.parse(table(*ROWS)) == {
        "0": [{"kernel": "add<half>(int, T1)", "dram_read_bytes": 134279680, "dram_write_bytes": 116706560, "registers": 18,
               "instructions_count": 119013376, "issue_active_percent": 71.72, "dram_active_percent": 32.16,
               "duration_us": 1.5, "flops_count": 3 + 5 + 2 * 7},
              {"kernel": 'mul "quoted", twice', "dram_read_bytes": 0, "dram_write_bytes": 1024, "registers": 32,
               "instructions_count": None, "issue_active_percent": 100, "dram_active_percent": 0.5, "duration_us": None}],
        "12": [{"kernel": "triton_poi_fused_0", "dram_read_bytes": 1, "dram_write_bytes": 2, "registers": 16,
                "instructions_count": None, "issue_active_percent": 5, "dram_active_percent": 6,
                "duration_us": 65.536, "flops_count": 1021}],
    }


def test_counters_parse_keeps_kernels_outside_a_range_apart():
    assert list(counters.parse(table(("other:0", "k", *["1"] * 10), ROWS[2]))) == ["", "12"]


def test_counters_parse_says_what_ncu_said_where_there_is_no_table():
    refused = LOG + "==ERROR== ERR_NVGPUCTRPERM - The user does not have permission to access NVIDIA GPU Performance Counters\n"
    with pytest.raises(ValueError, match="ERR_NVGPUCTRPERM - The user does not have permission"):
        counters.parse(refused)
    with pytest.raises(ValueError, match="ncu printed no table"):
        counters.parse(LOG)


def test_counters_parse_takes_a_run_without_kernels():
    assert counters.parse(LOG + "==WARNING== No kernels were profiled.\n") == {}


def kernel(name: str) -> dict:
    return {"name": name, "counters": None}


def test_counters_attach_pairs_by_order():
    results = [{"kernels": [kernel("add"), kernel("mul")]}, {"outcome": "out of memory"}]
    counters.attach(results, counters.parse(table(*ROWS)))
    assert [row["counters"]["registers"] for row in results[0]["kernels"]] == [18, 32]
    assert list(results[0]["kernels"][0]["counters"]) == [*counters.METRICS, "flops_count"]
    assert results[1] == {"outcome": "out of memory"} and "counters_missing" not in results[0]


def test_counters_attach_gives_a_reason_where_the_numbers_of_kernels_differ():
    results = [{"kernels": [kernel("add")]}, {"kernels": [kernel("add")]}]
    counters.attach(results, counters.parse(table(*ROWS)))
    assert results[0]["counters_missing"] == "ncu saw 2 kernels where the profiler saw 1"
    assert results[1]["counters_missing"] == "ncu saw 0 kernels where the profiler saw 1"
    assert results[0]["kernels"][0]["counters"] is None


def test_counters_attach_steps_over_the_drivers_copies():
    results = [{"kernels": [kernel("Memcpy DtoD (Device -> Device)"), kernel("add"), kernel("Memset (Device)"), kernel("mul")]}]
    counters.attach(results, counters.parse(table(*ROWS)))
    assert [row["counters"] and row["counters"]["registers"] for row in results[0]["kernels"]] == [None, 18, None, 32]
    assert results[0]["counters_missing"] == "a copy or fill by the driver is no kernel to Nsight Compute"


def test_counters_command_writes_the_table_to_the_log(monkeypatch):
    monkeypatch.setattr(counters, "tool", lambda: "/somewhere/ncu")
    command = counters.command("out.csv")
    assert command[0] == "/somewhere/ncu" and command[command.index("--log-file") + 1] == "out.csv"
    assert command[-1].split(",") == list(counters.KERNEL_METRICS)
    whole = counters.command("out.csv", counters.CALL_METRICS, *counters.WHOLE_CALL)
    assert whole[-1] == "dram__bytes_read.sum,dram__bytes_write.sum" and "app-range" in whole


def test_counters_attach_calls_puts_a_range_beside_its_kernels():
    results = [{"outcome": "measured", "kernels": [kernel("add"), kernel("mul")]}, {"outcome": "out of memory"}]
    ranges = {"": [{"kernel": "range", "dram_read_bytes": 7, "dram_write_bytes": 8}]}
    counters.attach_calls(results, ranges)
    assert results[0]["call_counters"] == {"dram_read_bytes": 7, "dram_write_bytes": 8} and "call_counters" not in results[1]
    with pytest.raises(ValueError, match="ncu saw 1 calls where 2 were measured"):
        counters.attach_calls([*results, results[0]], ranges)
