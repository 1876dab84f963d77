// The roofline chart is one stop for Tab; arrow keys walk its points by arithmetic intensity, and a line below says which one it is.
// Without this script every point is a link with a title, and the table below holds them all.
for (const figure of document.querySelectorAll(".roofline")) {
  const points = [...figure.querySelectorAll("svg a")], said = figure.querySelector(".roofline__said")
  const show = (point) => { said.textContent = point.getAttribute("aria-label") }
  points.forEach((point, index) => {
    point.addEventListener("mouseenter", () => show(point))
    point.addEventListener("focus", () => {
      points.forEach((other) => other.setAttribute("tabindex", other === point ? "0" : "-1"))
      show(point)
    })
    point.addEventListener("keydown", (event) => {
      const step = { ArrowRight: 1, ArrowUp: 1, ArrowLeft: -1, ArrowDown: -1 }[event.key]
      const next = event.key === "Home" ? points[0] : event.key === "End" ? points.at(-1) : step && points[index + step]
      if (!next) return
      event.preventDefault()
      next.focus()
    })
  })
}
