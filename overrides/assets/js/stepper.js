// The online softmax stepper. The page is whole without it: this steps through the blocks, and counts again for scores that a reader edits.
// It holds no words: what it says is in the figure's data-* attributes. The arithmetic is that of harness/stepper.py.
class Stepper {
  static steps(scores, values, size) {
    let m = -Infinity, l = 0, o = [0, 0]
    const found = [{ m, l, o, mean: o }]
    for (let first = 0; first < scores.length; first += size) {
      const part = scores.slice(first, first + size), top = Math.max(...part), old = m, before = l
      m = Math.max(m, top)
      const safe = m === -Infinity ? 0 : m // -Infinity - -Infinity is NaN
      const factor = Math.exp(old - safe), p = part.map((score) => Math.exp(score - safe)), added = p.reduce((sum, one) => sum + one, 0)
      l = factor * l + added
      o = o.map((sum, axis) => factor * sum + p.reduce((total, one, index) => total + one * values[first + index][axis], 0))
      found.push({ scores: part, top, old, m, factor, l, o, scale: factor * before / (l || 1), mean: o.map((sum) => sum / (l || 1)), before, added })
    }
    return found
  }

  static whole = (scores, values) => Stepper.steps(scores, values, scores.length)[1].mean // one block: nothing is rescaled

  static number(value) {
    if (Array.isArray(value)) return `(${value.map(Stepper.number).join(", ")})`
    if (!Number.isFinite(value)) return "−∞"
    return String(+value.toFixed(4) + 0).replace("-", "−")
  }

  here = 0 // how many blocks were read

  constructor(figure) {
    const all = (selector) => [...figure.querySelectorAll(selector)]
    this.figure = figure
    this.cells = all(".stepper__cell").map((cell) => ({
      input: cell.querySelector("input"), mask: cell.querySelector("button"), value: cell.dataset.value.split(" ").map(Number) }))
    for (const cell of this.cells) cell.score = Number(cell.input.value)
    this.rows = all(".stepper__step")
    this.blocks = all(".stepper__block")
    this.walks = all("[data-do]")
    this.presets = all("[data-scores]").map((button) => (
      { button, scores: button.dataset.scores.replaceAll("inf", "Infinity").split(" ").map(Number) }))
    this.said = figure.querySelector(".stepper__said")
    for (const { input } of this.cells) input.readOnly = false
    for (const part of all("[hidden]")) part.hidden = false
    this.listen()
    this.show()
  }

  count() {
    const scores = this.cells.map(({ score }) => score), values = this.cells.map(({ value }) => value)
    this.steps = Stepper.steps(scores, values, Number(this.figure.dataset.size))
    this.whole = Stepper.number(Stepper.whole(scores, values))
  }

  show() { // every number anew, the current block marked, and what happened said
    this.count()
    for (const [index, row] of this.rows.entries()) {
      const step = this.steps[index]
      for (const cell of row.querySelectorAll("[data-key]")) {
        const value = step[cell.dataset.key]
        cell.textContent = cell.dataset.key === "scores" ? value.map(Stepper.number).join(", ") : Stepper.number(value)
      }
      row.classList.toggle("is-here", index === this.here)
      if (index === this.here) row.setAttribute("aria-current", "step")
      else row.removeAttribute("aria-current")
    }
    this.figure.querySelector("[data-key=whole]").textContent = this.whole
    for (const [index, block] of this.blocks.entries()) block.classList.toggle("is-here", index + 1 === this.here)
    for (const { input, mask, score } of this.cells) {
      const masked = score === -Infinity
      if (document.activeElement !== input) input.value = masked ? "" : score
      mask.setAttribute("aria-pressed", masked)
    }
    const now = this.cells.map(({ score }) => score).join(" ")
    for (const { button, scores } of this.presets) button.setAttribute("aria-pressed", scores.join(" ") === now)
    this.walks[0].setAttribute("aria-disabled", this.here === 0) // disabled would lose the focus, and with it the keys
    this.walks[1].setAttribute("aria-disabled", this.here === this.rows.length - 1)
    this.say()
  }

  say() {
    const step = this.steps[this.here], { dataset } = this.figure
    const fill = (text) => text.replace(/\{(\w+)\}/g, (_, key) => ({ block: this.here, whole: this.whole })[key] ?? Stepper.number(step[key]))
    const said = this.here === 0 ? dataset.start : fill(step.m === -Infinity ? dataset.masked : dataset.step)
    this.said.textContent = this.here === this.rows.length - 1 ? `${said} ${fill(dataset.done)}` : said
  }

  go(by) {
    this.here = Math.min(this.rows.length - 1, Math.max(0, this.here + by))
    this.show()
  }

  load(scores) {
    for (const [index, cell] of this.cells.entries()) cell.score = scores[index]
    this.show()
  }

  listen() {
    for (const button of this.walks) button.addEventListener("click", () => this.go(Number(button.dataset.do)))
    for (const { button, scores } of this.presets) button.addEventListener("click", () => this.load(scores))
    for (const cell of this.cells) {
      cell.input.addEventListener("input", () => { // a text that is no number yet changes nothing
        if (cell.input.value === "") return
        cell.score = Math.min(9999, Math.max(-9999, Number(cell.input.value)))
        this.show()
      })
      cell.input.addEventListener("blur", () => this.show())
      cell.mask.addEventListener("click", () => {
        [cell.score, cell.kept] = cell.score === -Infinity ? [cell.kept ?? 0, undefined] : [-Infinity, cell.score]
        this.show()
      })
    }
    this.figure.addEventListener("keydown", (press) => {
      const by = { ArrowLeft: -1, ArrowRight: 1 }[press.key]
      if (!by || press.target.matches("input, .scroll") || press.ctrlKey || press.metaKey || press.altKey) return
      press.preventDefault()
      this.go(by)
    })
  }
}

for (const figure of document.querySelectorAll(".stepper")) new Stepper(figure)
