// The checks of the exercises. The page is whole without them: hints and answers are folded text.
// It holds no words: what it says is in data-* attributes. The arithmetic is that of harness/exercise.py.
class Answer {
  static NUMBER = /^[+-]?(?:(?:[0-9]{1,3}(?:([, _])[0-9]{3}(?:\1[0-9]{3})*)|[0-9]+)(?:\.[0-9]*)?|\.[0-9]+)(?:[eE][+-]?[0-9]+)?$/

  static parse(text) { // the number that was typed, or null
    const plain = text.normalize("NFKC").replaceAll("−", "-").trim()
    const value = Answer.NUMBER.test(plain) ? Number(plain.replace(/[, _]/g, "")) : NaN
    return isFinite(value) ? value : null
  }

  static verdict(given, answer, tolerance = 0) {
    if (Array.isArray(answer)) return !given.every(Boolean) ? "empty" : given.join("\n") === answer.join("\n") ? "right" : "wrong"
    const value = Answer.parse(given)
    if (value === null) return given.trim() ? "unreadable" : "empty"
    return Math.abs(value - answer) <= tolerance * Math.abs(answer) ? "right" : value < answer ? "low" : "high"
  }

  static countRight = (given, answer) => given.filter((one, place) => one === answer[place]).length
}

const Kept = { key: "exercises", // in this browser's storage, which may be shut, or hold what another version wrote
  read() {
    let kept
    try { kept = JSON.parse(localStorage.getItem(Kept.key)) } catch { /* none */ }
    return kept?.version === 1 ? kept : { version: 1, solved: {}, given: {} }
  },
  change(change) {
    const kept = Kept.read(), cleared = change(kept) === null
    try { cleared ? localStorage.removeItem(Kept.key) : localStorage.setItem(Kept.key, JSON.stringify(kept)) } catch { /* then it is not kept */ }
    document.dispatchEvent(new Event("exercises"))
  },
}

class Exercise {
  static middle = (element) => element ? element.getBoundingClientRect().top + element.offsetHeight / 2 : NaN // of none nothing is above or below

  constructor(fieldset) {
    const { check, kind, answer, tolerance, say } = fieldset.dataset
    Object.assign(this, { fieldset, check, kind, answer: JSON.parse(answer), tolerance: Number(tolerance ?? 0), say: JSON.parse(say) })
    const [said, told, mark, list] = ["said", "answer", "solved", "steps"].map((part) => fieldset.querySelector(`.exercise__${part}`))
    Object.assign(this, { said, told, mark, list, fields: [...fieldset.querySelectorAll("input, select")] })
    this.drawn = this.given // to be had again when all is cleared
    for (const field of this.fields) field.disabled = false
    for (const part of fieldset.querySelectorAll("button, .exercise__tools, .exercise__needs")) part.hidden = part.matches(".exercise__needs")
    this.listen()
  }

  get given() {
    if (this.list) return [...this.list.children].map((step) => step.dataset.key)
    if (this.kind === "choice") return [this.fields.find((field) => field.checked)?.value ?? ""]
    return this.kind === "number" ? this.fields[0].value : this.fields.map((field) => field.value)
  }

  set given(given) {
    if (this.kind === "choice") for (const field of this.fields) field.checked = field.value === given[0]
    else for (const [place, field] of this.fields.entries()) field.value = (this.kind === "number" ? given : given[place]) ?? ""
    for (const key of this.list ? given : []) this.list.append([...this.list.children].find((step) => step.dataset.key === key))
    this.showEnds()
  }

  restore() {
    const { solved, given: { [this.check]: given = this.drawn } } = Kept.read()
    this.given = this.list && [...given].sort().join() !== [...this.drawn].sort().join() ? this.drawn : given // the page may have other steps since
    this.told.hidden = this.mark.hidden = !solved[this.check]
    this.told.open = false
    this.said.textContent = ""
  }

  examine() {
    const found = Answer.verdict(this.given, this.answer, this.tolerance), right = found === "right"
    this.tell(found === "wrong" && this.kind === "choice" ? "one" : found)
    if (found !== "empty" && found !== "unreadable") this.told.hidden = false // it was an attempt
    if (right) [this.told.open, this.mark.hidden] = [true, false]
    Kept.change(({ solved, given }) => { given[this.check] = this.given; if (right) solved[this.check] = true })
  }

  tell(word, here) {
    const right = Array.isArray(this.answer) && Answer.countRight(this.given, this.answer), all = this.answer.length
    this.said.textContent = this.say[word].replace(/\{(\w+)\}/g, (_, key) => ({ right, all, here })[key])
  }

  keep() { // an answer that is being changed is no longer the one that was judged
    this.said.textContent = ""
    Kept.change(({ given }) => { given[this.check] = this.given })
  }

  move(step, by) { // the neighbour moves, so that the step keeps the focus and the pointer
    const [from, to] = by < 0 ? ["previousElementSibling", "after"] : ["nextElementSibling", "before"]
    if (!step[from]) return
    step[to](step[from])
    this.showEnds()
    this.keep()
    this.tell("moved", [...this.list.children].indexOf(step) + 1)
  }

  showEnds() { // disabled would lose the focus, and with it the keys
    for (const button of this.list?.querySelectorAll("button") ?? [])
      button.ariaDisabled = button.closest("li") === this.list[button.dataset.by < 0 ? "firstElementChild" : "lastElementChild"]
  }

  listen() {
    this.fieldset.querySelector(".exercise__check").addEventListener("click", () => this.examine())
    this.fieldset.addEventListener("input", () => this.keep())
    this.fieldset.addEventListener("keydown", (press) => { if (press.key === "Enter" && press.target.matches("input")) this.examine() })
    for (const step of this.list?.children ?? []) {
      for (const button of step.querySelectorAll("button")) button.addEventListener("click", () => this.move(step, Number(button.dataset.by)))
      step.addEventListener("pointerdown", (press) => { // a finger drags by the grip, and scrolls elsewhere
        if (press.target.closest("button") || (press.pointerType === "touch" && !press.target.closest(".exercise__grip"))) return
        press.preventDefault()
        step.setPointerCapture(press.pointerId)
      })
      step.addEventListener("pointermove", ({ pointerId, clientY }) => {
        if (!step.hasPointerCapture(pointerId)) return
        while (clientY < Exercise.middle(step.previousElementSibling)) this.move(step, -1)
        while (clientY > Exercise.middle(step.nextElementSibling)) this.move(step, 1)
      })
    }
  }
}

const exercises = [...document.querySelectorAll(".exercise")].map((fieldset) => new Exercise(fieldset))
const notes = [...document.querySelectorAll("[data-note]")].map((field) => {
  field.parentElement.hidden = false
  field.addEventListener("input", () => Kept.change(({ given }) => { given[field.dataset.note] = field.value }))
  return { restore: () => { field.value = Kept.read().given[field.dataset.note] ?? "" } }
})
for (const part of [...exercises, ...notes]) part.restore()

for (const progress of document.querySelectorAll(".exercise-progress")) {
  const button = progress.querySelector("button"), said = progress.querySelector("[role=status]")
  const show = () => {
    const { solved, given } = Kept.read()
    for (const part of progress.querySelectorAll("[data-checks]")) {
      const checks = JSON.parse(part.dataset.checks), done = checks.filter((check) => solved[check]).length, state = part.lastElementChild
      state.textContent = done === checks.length ? state.dataset.solved : progress.dataset.of.replace("{}", done).replace("{}", checks.length)
    }
    button.ariaDisabled = !Object.keys({ ...solved, ...given }).length
  }
  button.addEventListener("click", () => {
    if (button.ariaDisabled === "true" || !confirm(button.dataset.sure)) return
    Kept.change(() => null)
    for (const part of [...exercises, ...notes]) part.restore()
    said.textContent = said.dataset.cleared
  })
  document.addEventListener("exercises", () => { said.textContent = ""; show() })
  progress.hidden = false
  show()
}
