// Stages of a compiler side by side. The listings are whole without it: this marks, in every stage, what comes from the same source lines.
// It holds no words: what it says is in the figure's data-* attributes.
class Stages {
  picked = [] // source lines, as texts

  constructor(figure) {
    const all = (selector, within = figure) => [...within.querySelectorAll(selector)]
    this.figure = figure
    this.said = figure.querySelector(".stages__said")
    this.hint = this.said.textContent
    this.picks = all(".stages__picks button")
    this.strip = figure.querySelector(".stages__strip")
    this.stages = all(".stages__stage").map((element) => ({
      element, code: element.querySelector(".stages__code"), title: element.getAttribute("aria-label"),
      lines: all(".stages__line", element).map((line) => ({ line, from: line.dataset.from?.split(" ") ?? [] })) }))
    this.goes = all("[data-go]")
    figure.classList.add("is-live") // now the stages stand in a row
    for (const button of this.picks) button.disabled = false
    figure.querySelector(".stages__go").hidden = false
    this.listen()
  }

  mark(from) { // what shares a source line with these; each stage scrolls to the first of it, itself alone
    for (const { code, lines } of this.stages) {
      let first = null
      for (const { line, from: own } of lines) {
        const kin = own.some((one) => from.includes(one))
        line.classList.toggle("is-kin", kin)
        if (kin) first ??= line
      }
      const box = code.getBoundingClientRect(), place = first?.getBoundingClientRect()
      if (first && !code.matches(":hover")) code.scrollTop += place.top - box.top - box.height / 4
    }
    for (const button of this.picks) button.classList.toggle("is-kin", from.includes(button.dataset.from))
  }

  pick(from) {
    this.picked = from
    this.mark(from)
    for (const button of this.picks) button.setAttribute("aria-pressed", from.includes(button.dataset.from))
    this.said.textContent = from.length ? this.say() : this.hint
  }

  say() {
    const { said, count } = this.figure.dataset
    const counts = this.stages.map(({ title, lines }) => {
      const numbers = { n: lines.filter(({ line }) => line.classList.contains("is-kin")).length, all: lines.length }
      return `${title} ${count.replace(/\{(\w+)\}/g, (_, key) => numbers[key])}`
    })
    return said.replace("{0}", counts.join(" · "))
  }

  listen() {
    const lineOf = ({ target }) => target.closest(".stages__line")?.dataset.from?.split(" ")
    const toggle = (from) => this.pick(String(from) === String(this.picked) ? [] : from)
    for (const button of this.picks) {
      button.addEventListener("click", () => toggle([button.dataset.from]))
      button.addEventListener("focus", () => this.mark([button.dataset.from]))
      button.addEventListener("blur", () => this.mark(this.picked))
    }
    this.strip.addEventListener("pointerover", (event) => { if (event.pointerType === "mouse") this.mark(lineOf(event) ?? this.picked) })
    this.strip.addEventListener("pointerleave", () => this.mark(this.picked))
    this.strip.addEventListener("click", (event) => toggle(lineOf(event) ?? []))
    this.figure.addEventListener("keydown", ({ key }) => { if (key === "Escape") this.pick([]) })
    for (const [index, button] of this.goes.entries()) button.addEventListener("click", () => {
      this.strip.scrollLeft += this.stages[index].element.getBoundingClientRect().left - this.strip.getBoundingClientRect().left
    })
  }
}

for (const figure of document.querySelectorAll(".stages")) new Stages(figure)
