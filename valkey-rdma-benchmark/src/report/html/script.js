"use strict";
// Values under the pointer. Without this script, the page shows everything but them.
const tip = document.getElementById("tip");
const hide = () => { tip.style.visibility = "hidden"; };
const show = (event, fill) => {
  tip.replaceChildren();
  fill(tip);
  const box = tip.getBoundingClientRect();
  const left = Math.min(event.clientX + 14, innerWidth - box.width - 8);
  const above = event.clientY - box.height - 14;
  tip.style.left = Math.max(8, left) + "px";
  tip.style.top = (above > 8 ? above : event.clientY + 20) + "px";
  tip.style.visibility = "visible";
};
for (const figure of document.querySelectorAll("figure")) {
  const source = figure.querySelector("script");
  const svg = figure.querySelector("svg");
  if (!source) continue;
  const data = JSON.parse(source.textContent);
  const here = svg.querySelector(".here");
  const leave = () => { hide(); here.style.visibility = "hidden"; };
  const move = event => {
    const box = svg.getBoundingClientRect();
    const x = (event.clientX - box.left) / box.width * svg.viewBox.baseVal.width;
    let nearest = 0;
    data.x.forEach((place, number) => { if (Math.abs(place - x) < Math.abs(data.x[nearest] - x)) nearest = number; });
    here.setAttribute("transform", `translate(${data.x[nearest]} 0)`);
    here.style.visibility = "visible";
    show(event, to => {
      to.append(data.label[nearest]);
      for (const line of data.series) {
        if (line.text[nearest] === undefined) continue;
        const row = document.createElement("div");
        const mark = document.createElement("i");
        mark.className = line.class;
        row.append(mark, `${line.name}: ${line.text[nearest]}${data.suffix}`);
        to.append(row);
      }
    });
  };
  svg.addEventListener("pointermove", move);
  svg.addEventListener("pointerdown", move);
  svg.addEventListener("pointerleave", leave);
}
for (const row of document.querySelectorAll("[data-tip]")) {
  const move = event => show(event, to => to.append(row.dataset.tip));
  row.addEventListener("pointermove", move);
  row.addEventListener("pointerdown", move);
  row.addEventListener("pointerleave", hide);
}
addEventListener("scroll", hide, { passive: true });
