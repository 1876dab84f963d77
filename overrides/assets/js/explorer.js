// The trace explorer. The page is whole without it: this selects events by mouse, touch and keys, follows arrows, zooms, hides a half.
// It holds no words: what it says is in the figure's table and buttons.
const REACH = 14 // px from an event at which a click still means it
const CLOSER = 1.5, CLOSEST = 24
const calm = matchMedia("(prefers-reduced-motion: reduce)")
const far = (x, y, area) => area.height ? Math.hypot(Math.max(area.left - x, 0, x - area.right), Math.max(area.top - y, 0, y - area.bottom)) : Infinity
const least = (list, cost) => list.reduce((best, one) => !best || cost(one) < cost(best) ? one : best, null)

class Explorer {
  here = null // the event that is selected
  pinned = null
  zoom = 1
  drag = null

  constructor(figure) {
    this.figure = figure
    this.all = (selector, within = figure) => [...within.querySelectorAll(selector)]
    this.box = figure.querySelector(".explorer__box")
    this.hint = figure.querySelector(".explorer__hint");
    [this.facts, this.pinnedFacts] = this.all(".explorer__facts")
    this.halves = this.all(".explorer__half")
    this.heads = this.all(".explorer__data thead th").map((head) => head.textContent)
    this.button = Object.fromEntries(this.all("[data-do]").map((element) => [element.dataset.do, element]))
    const inHalf = (element) => ({ element, half: element.closest(".explorer__half") })
    this.arrows = this.all(".explorer__arrow").map(inHalf)
    this.tracks = this.all("[data-track]:not(.explorer__event)").map((element) => ({ ...inHalf(element), name: element.dataset.track }))
    this.events = this.halves.flatMap((half) => this.read(half))
    this.brush = document.createElement("canvas").getContext("2d")
    this.listen()
    this.box.removeAttribute("tabindex")
    for (const drawing of this.all(".explorer__svg")) drawing.setAttribute("role", "application")
    for (const { element } of this.events) element.setAttribute("role", "button")
    for (const part of this.all(".explorer__tools, .explorer__panel")) part.hidden = false
    this.select(null)
    this.scale(1)
  }

  read(half) {
    const rows = this.all(`tbody[data-half="${half.dataset.half}"] .explorer__row`), labels = this.all(".explorer__label", half)
    return this.all(".explorer__event", half).map((element, index) => {
      const { track, from, to, pair, kin, frames } = element.dataset
      return { element, half, index, row: rows[index], label: labels[index], shape: element.querySelector("rect, path"), track, frames,
        from: +from, to: +to, pair: pair && +pair, kin: new Set(kin?.split(" ").map(Number)) }
    })
  }

  shown = (half) => !this.figure.dataset.show || this.figure.dataset.show === half.dataset.half

  // Selection: what has the focus is what the panel shows.
  select(event) {
    this.here = event
    const stop = event ?? this.events.find((one) => this.shown(one.half)) // the one event that Tab reaches
    for (const one of this.events) {
      one.element.setAttribute("tabindex", one === stop ? 0 : -1)
      one.element.classList.toggle("is-here", one === event)
      one.element.classList.toggle("is-kin", one.half === event?.half && event.kin.has(one.index))
    }
    for (const { element, half } of this.arrows) {
      const ends = [+element.dataset.from, +element.dataset.to]
      element.classList.toggle("is-kin", half === event?.half && ends.every((end) => end === event.index || event.kin.has(end)))
    }
    this.describe(event, this.facts)
    this.hint.hidden = !!event
    this.button.follow.disabled = event?.pair === undefined
    this.button.pin.disabled = this.button.clear.disabled = !event
    this.button.pin.setAttribute("aria-pressed", !!event && event === this.pinned)
    for (const stack of this.all(".explorer__stack")) if (stack.dataset.frames === event?.frames) stack.open = true
  }

  pin(event) {
    const mark = (on) => {
      this.pinned?.element.classList.toggle("is-pinned", on)
      this.pinned?.element.setAttribute("aria-pressed", on)
    }
    mark(false)
    this.pinned = event
    mark(true)
    this.button.pin.setAttribute("aria-pressed", !!event)
    this.describe(event, this.pinnedFacts)
  }

  clear() {
    this.pin(null)
    this.select(null)
  }

  describe(event, place) { // the event's row of the table, as a list: its name first, its raw name last
    const list = document.createElement("dl")
    const add = (head, text, style = "") => {
      const item = list.appendChild(document.createElement("div"))
      for (const [tag, content] of [["dt", head], ["dd", text]]) item.appendChild(document.createElement(tag)).textContent = content
      item.className = style
      return item
    }
    for (const [index, cell] of [...event?.row.cells ?? []].entries()) {
      const name = cell.querySelector("code"), head = this.heads[index]
      if (name) list.prepend(add(place.dataset.title ?? head, name.textContent, "explorer__whole explorer__whole--name"))
      else if (cell.textContent !== "–") add(head, cell.textContent)
    }
    const raw = event?.row.querySelector(".raw")
    if (raw) add(raw.getAttribute("aria-label"), raw.textContent, "explorer__whole explorer__whole--raw")
    place.replaceChildren(...event ? [list] : [])
  }

  // Walking: along a lane in time, between lanes to what is nearest in time, along an arrow.
  go(event) {
    event?.element.focus({ preventScroll: true })
    event?.element.scrollIntoView({ block: "nearest", inline: "nearest", behavior: calm.matches ? "auto" : "smooth" })
  }

  lane = ({ half, track }) => this.events.filter((event) => event.half === half && event.track === track)

  step(by) {
    const lane = this.lane(this.here)
    this.go(lane[lane.indexOf(this.here) + by])
  }

  cross(by) {
    const open = this.tracks.filter((track) => this.shown(track.half)), { half, track, from, to } = this.here
    const next = open[open.findIndex((one) => one.half === half && one.name === track) + by]
    if (next) this.go(least(this.lane({ half: next.half, track: next.name }), (event) => Math.abs(event.from + event.to - from - to)))
  }

  follow() {
    this.go(this.events.find((event) => event.half === this.here?.half && event.index === this.here.pair))
  }

  // The time axis: places are in percent of the drawing, so a zoom is another width, with the ticks and labels that fit it.
  drawing = () => this.halves.find(this.shown).querySelector(".explorer__svg").getBoundingClientRect()

  scale(to, x = this.box.getBoundingClientRect().left + this.box.clientWidth / 2) { // x stays where it is
    const before = this.drawing(), start = this.halves.find(this.shown).getBoundingClientRect().left
    const fit = Math.min(1, (this.box.clientWidth - before.left + start) * this.zoom / before.width)
    this.zoom = Math.min(CLOSEST, Math.max(fit, to))
    this.figure.style.setProperty("--zoom", this.zoom)
    const after = this.drawing()
    this.box.scrollLeft += after.left + after.width * (x - before.left) / before.width - x
    this.button.in.disabled = this.zoom === CLOSEST
    this.button.out.disabled = this.zoom === fit
    this.label(after.width / 100)
    for (const drawing of this.all(".explorer__svg")) this.mark(drawing, after.width)
  }

  mark(drawing, width) { // ticks at least 40 px apart: a line and a number each
    const top = +drawing.dataset.top, [, zero, ...later] = this.all(".explorer__tick", drawing)
    const step = [1, 2, 5, 10, 20, 100, 200].find((us) => us * width / top >= 40) ?? 500
    const made = Array.from({ length: Math.ceil(top / step) - 1 }, (_, index) => later.slice(0, 2).map((part) => {
      const copy = part.cloneNode(true), us = step * (index + 1)
      for (const key of ["x", "x1", "x2"]) if (copy.hasAttribute(key)) copy.setAttribute(key, `${100 * us / top}%`)
      if (copy.textContent) copy.textContent = us
      return copy
    }))
    for (const part of later) part.remove()
    zero.after(...made.flat())
  }

  label(unit) {
    const { fontSize, fontFamily } = getComputedStyle(this.events[0].label)
    this.brush.font = `${fontSize} ${fontFamily}`
    for (const { label, from, to, track } of this.events) {
      const inside = (to - from) * unit - 5, after = (label.dataset.until - to) * unit - (track === "allocator" ? 18 : 11)
      const width = (name) => this.brush.measureText(name).width
      label.textContent = label.dataset.names.split("\n").find((name) => width(name) <= Math.max(inside, after)) ?? ""
      label.setAttribute("x", `${width(label.textContent) <= inside ? from : to}%`)
    }
  }

  show(name) {
    if (name === "both") delete this.figure.dataset.show
    else this.figure.dataset.show = name
    for (const key of ["both", "eager", "compiled"]) this.button[key].setAttribute("aria-pressed", key === name)
    if (!this.here || !this.shown(this.here.half)) this.select(null)
  }

  listen() {
    const closer = () => this.scale(this.zoom * CLOSER), farther = () => this.scale(this.zoom / CLOSER), reset = () => this.scale(1)
    const pin = () => this.here && this.pin(this.here === this.pinned ? null : this.here)
    const actions = { in: closer, out: farther, reset, fit: () => this.scale(0), follow: () => this.follow(), pin, clear: () => this.clear() }
    for (const [name, element] of Object.entries(this.button)) element.addEventListener("click", actions[name] ?? (() => this.show(name)))
    const walks = { ArrowLeft: () => this.step(-1), ArrowRight: () => this.step(1), ArrowUp: () => this.cross(-1), ArrowDown: () => this.cross(1) }
    const keys = { "+": closer, "=": closer, "-": farther, 0: reset, f: actions.follow, Enter: pin, Escape: actions.clear }
    this.box.addEventListener("focusin", ({ target }) => this.select(this.events.find(({ element }) => element === target) ?? this.here))
    this.box.addEventListener("keydown", (press) => {
      if (press.ctrlKey || press.metaKey || press.altKey || !(walks[press.key] ?? keys[press.key])) return
      if (!this.here) this.select(this.events.find(({ element }) => element === press.target) ?? null) // after Escape
      if (this.here || keys[press.key]) (walks[press.key] ?? keys[press.key])()
      press.preventDefault()
      press.stopPropagation() // the site's own keys: f opens its search
    })
    this.box.addEventListener("wheel", (wheel) => {
      if (!wheel.ctrlKey) return
      wheel.preventDefault()
      this.scale(this.zoom * Math.exp(-wheel.deltaY / 300), wheel.clientX)
    }, { passive: false })
    addEventListener("resize", () => this.scale(this.zoom))
    this.point()
  }

  point() { // a click or a tap selects, a drag of the mouse moves
    const { box } = this
    box.addEventListener("mousedown", (press) => {
      press.preventDefault() // neither the focus, which the click gives, nor a selection of text
      if (press.button === 0) this.drag = { x: press.clientX, left: box.scrollLeft }
    })
    addEventListener("mousemove", ({ clientX }) => {
      if (this.drag) this.drag.moved ||= Math.abs(clientX - this.drag.x) > 4
      if (this.drag?.moved) box.scrollLeft = this.drag.left + this.drag.x - clientX
    })
    addEventListener("mouseup", () => setTimeout(() => { this.drag = null })) // after the click that ends a drag
    box.addEventListener("click", ({ target, clientX, clientY }) => {
      if (this.drag?.moved || target.closest(".explorer__tracks")) return
      const away = ({ shape, label }) => Math.min(...[shape, label].map((part) => far(clientX, clientY, part.getBoundingClientRect())))
      const nearest = least(this.events.filter(({ half }) => this.shown(half)), away)
      if (away(nearest) > REACH) return
      if (document.activeElement === nearest.element) this.select(nearest) // after Escape
      else nearest.element.focus({ preventScroll: true })
    })
  }
}

for (const figure of document.querySelectorAll(".explorer:not(.explorer--small)")) new Explorer(figure)
