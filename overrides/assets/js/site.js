// A record's age, counted when the page is read; without scripts its date stands alone.
for (const time of document.querySelectorAll("time.age")) {
  const days = Math.floor((Date.now() - new Date(time.dateTime)) / 864e5)
  const relative = new Intl.RelativeTimeFormat(document.documentElement.lang, { numeric: "auto" })
  if (days >= 0) time.append(` (${relative.format(-days, "day")})`)
}
