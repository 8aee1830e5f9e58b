// In the API reference's table of contents, mark the section that is being read.
const links = new Map(
  [...document.querySelectorAll(".contents a")].map((link) => [link.hash.slice(1), link]),
);
const headings = [...links.keys()].map((id) => document.getElementById(id));
function markCurrent() {
  const current = headings.findLast((heading) => heading.getBoundingClientRect().top < 120);
  for (const [id, link] of links) {
    if (id === current?.id) link.setAttribute("aria-current", "true");
    else link.removeAttribute("aria-current");
  }
}
addEventListener("scroll", markCurrent, { passive: true });
markCurrent();
