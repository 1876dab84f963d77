// A lab's predictions, beside what was measured. exercise.js keeps them: its fields, its storage, its one button that clears.
for (const shown of document.querySelectorAll("[data-guess]")) {
  const show = () => { shown.textContent = Kept.read().given[shown.dataset.guess]?.trim() || shown.dataset.none }
  document.addEventListener("exercises", show)
  shown.parentElement.hidden = false
  show()
}
