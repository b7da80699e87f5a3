// Opens the parts around the target of a link, and closes the contents on a small screen.
if (innerWidth < 900) document.querySelector("nav details").open = false;
const show = () => {
  const there = document.getElementById(decodeURIComponent(location.hash.slice(1)));
  for (let up = there; up; up = up.parentElement) if (up.tagName === "DETAILS") up.open = true;
  if (there) there.scrollIntoView();
};
addEventListener("hashchange", show);
show();
