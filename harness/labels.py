"""The words that rendered blocks use, in both languages. A missing one is a KeyError, so a build error."""
from harness.state import page

WORDS = {
    "en": {
        "variant": "Variant", "time": "Time of a call", "spread": "middle half of the samples",
        "kernels": "Kernels", "kernel": "Kernel", "kernel_time": "Time in kernels", "enqueue": "Host enqueue",
        "peak": "Peak extra memory", "pool": "+ {} in the graph's own pool", "traffic": "DRAM read + written",
        "share": "Share of copy ceiling", "speedup": "Speed-up", "compile": "First call, cold / warm cache",
        "category": "Category", "read": "Read", "written": "Written",
        "issue": "Issue slots busy", "error": "Error against float64",
        "floor": "floor: least bytes at the copy ceiling", "outcome": {"out of memory": "out of memory", "unsupported": "not supported"},
        "raw": "full name", "unstable": "unstable", "host_gap": "includes host gaps", "missing": "not counted",
        "record": "record", "snippet": "snippet", "method": "method", "measured_on": "Measured on {}",
        "elsewhere": " (not by the machine that built this page)", "this_machine": "This build's own GPU:",
        "warnings": {"stale": "The snippet has changed since: these figures are of its earlier version.",
                     "other environment": "Measured with another torch, driver or CUDA than this build's."},
        "no_record": "{} has no record of this snippet.", "cannot_run": "{} cannot run this: {}.",
        "lacks": "The record of {} lacks what this figure shows: {}.",
        "category_names": {"pointwise": "pointwise", "reduction": "reduction", "matmul": "matmul",
                           "attention": "attention", "copy": "copy", "other": "other"},
        "claims_hold": "Checked in this build against the record of {}: {} of {} examples hold.",
        "claims_fail": "Does not hold on {}:", "reproduce": "reproduce:", "date": "Measured",
        "ceiling": "Ceiling", "value": "Value", "found_with": "Found with", "copy": "Copy, read + written", "matmul": "Matrix product, {}",
        "state": "State", "commit": "Commit", "samples": "samples",
        "states": {"fresh": "fresh", "stale": "stale", "other environment": "other environment", "missing": "missing"},
        "machine": "Machine", "fact": "Property", "clock": "Clock", "calls_in_block": "{} a block: {}",
    },
    "zh": {
        "variant": "变体", "time": "单次调用时间", "spread": "居中一半样本的范围",
        "kernels": "kernel 数", "kernel": "kernel", "kernel_time": "kernel 内时间", "enqueue": "主机端入队",
        "peak": "额外显存峰值", "pool": "另有 {} 在 CUDA Graph 私有池", "traffic": "DRAM 读 + 写",
        "share": "占复制上限的比例", "speedup": "加速比", "compile": "首次调用，冷 / 热缓存",
        "category": "类别", "read": "读", "written": "写",
        "issue": "发射槽占用", "error": "相对 float64 的误差",
        "floor": "下限：以复制上限搬运最少的字节", "outcome": {"out of memory": "显存不足", "unsupported": "不支持"},
        "raw": "完整名称", "unstable": "不稳定", "host_gap": "含主机端空隙", "missing": "未计数",
        "record": "记录", "snippet": "代码片段", "method": "方法", "measured_on": "测量于 {}",
        "elsewhere": "（并非由构建本页的机器测得）", "this_machine": "本次构建所用的 GPU：",
        "warnings": {"stale": "代码在测量之后有改动：这些数字属于旧版本。",
                     "other environment": "测量时的 torch、驱动或 CUDA 版本与本次构建不同。"},
        "no_record": "{} 没有这段代码的记录。", "cannot_run": "{} 无法运行这段代码：{}。",
        "lacks": "{} 的记录缺少此图所需的内容：{}。",
        "category_names": {"pointwise": "逐元素", "reduction": "归约", "matmul": "矩阵乘", "attention": "注意力",
                           "copy": "复制", "other": "其他"},
        "claims_hold": "本次构建已对照 {} 的记录检查：{} / {} 条成立。",
        "claims_fail": "在 {} 上不成立：", "reproduce": "复现：", "date": "测量日期",
        "ceiling": "上限", "value": "数值", "found_with": "取自", "copy": "复制，读 + 写", "matmul": "矩阵乘，{}",
        "state": "状态", "commit": "提交", "samples": "样本",
        "states": {"fresh": "最新", "stale": "已过期", "other environment": "环境不同", "missing": "缺失"},
        "machine": "机器", "fact": "属性", "clock": "时钟", "calls_in_block": "每块 {} 次：{}",
    },
}


def word(key: str, *values) -> str:
    text = WORDS[page.language][key]
    return text.format(*values) if isinstance(text, str) else text[values[0]]
