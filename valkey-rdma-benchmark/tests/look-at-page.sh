#!/usr/bin/env bash
# Opens a page of `--html` in headless Chromium (Debian: apt install chromium), as wide as a phone and as a desktop. Fails if
# the page has to be scrolled sideways, if its script fails, or if a touch shows no values. Leaves pictures beside the page.
# Continuous integration does not run it, because a browser takes long to install.
#
# usage: look-at-page.sh PAGE.html...
set -euo pipefail
[ $# -gt 0 ] || { echo "usage: look-at-page.sh PAGE.html..." >&2; exit 2; }
copy=$(mktemp -d)
trap 'rm -rf "$copy"' EXIT
browse() {
    timeout 60 chromium --headless --no-sandbox --disable-gpu --hide-scrollbars --user-data-dir="$copy/profile" "$@" 2>/dev/null
}
# shellcheck disable=SC2016 # the browser's templates
probe='<script>
  addEventListener("load", () => {
    let shown = 0;
    const figures = document.querySelectorAll("figure svg");
    for (const svg of figures) {
      const target = svg.querySelector("[data-tip]") ?? svg;
      const box = svg.getBoundingClientRect();
      const place = { clientX: box.left + box.width / 2, clientY: box.top + box.height / 2, bubbles: true };
      target.dispatchEvent(new PointerEvent("pointerdown", place));
      if (tip.style.visibility === "visible" && tip.textContent.trim() !== "") shown++;
      target.dispatchEvent(new PointerEvent("pointerleave", place));
    }
    const too_wide = document.documentElement.scrollWidth - innerWidth;
    document.title = `LOOKED figures=${figures.length} shown=${shown} too_wide=${Math.max(0, too_wide)}`;
  });
</script></body>'
for page; do
    for width in 390 1280; do
        sed "s|</body>|$(sed -e 's/[&|\\]/\\&/g' -e 's/$/\\/' <<<"$probe" | sed '$s/\\$//')|" "$page" >"$copy/page.html"
        found=$(browse --window-size="$width,1000" --dump-dom "file://$copy/page.html" | grep -o 'LOOKED figures=[0-9]* shown=[0-9]* too_wide=[0-9]*') ||
            { echo "$page at $width: the page's script failed"; exit 1; }
        echo "$page at $width: $found"
        read -r figures shown too_wide < <(tr -cs '0-9\n' ' ' <<<"$found")
        if [ "$figures" -eq 0 ] || [ "$shown" -ne "$figures" ] || [ "$too_wide" -ne 0 ]; then exit 1; fi
        browse --window-size="$width,3000" --screenshot="${page%.html}-$width.png" "file://$(readlink -f "$page")" >/dev/null
    done
done
