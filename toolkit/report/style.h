// The style sheet of report.html: light and dark, from 400 pixels of width on.
#pragma once

namespace dtk {

inline constexpr char report_style[] = R"css(
:root {
  color-scheme: light dark;
  --page: #fbfbfa; --surface: #ffffff; --ink: #1c1e21; --soft: #5f656d; --faint: #8b9199; --rule: #e3e5e8;
  --line: #1f5fbf; --thin: #8fb2e2; --dots: #c2410c; --mark: #b42318;
  --parameters: #4477aa; --frozen: #2c5172; --casts: #88bbdd; --gradients: #ee8833; --optimizer: #8866aa; --ema: #44a29a;
  --saved: #cc5060; --offloaded: #e08f99; --data: #95735c; --temporaries: #d9b430; --scratch: #a8adb3; --other: #e377a8;
}
@media (prefers-color-scheme: dark) {
  :root {
    --page: #15171a; --surface: #1d2024; --ink: #e7e9ec; --soft: #a9b0b8; --faint: #7d858e; --rule: #32363c;
    --line: #7db0f5; --thin: #3d5f90; --dots: #fb923c; --mark: #f88378;
    --parameters: #5b8fc7; --frozen: #3f6d99; --casts: #9cc9e8; --gradients: #f09a4f; --optimizer: #a184c4; --ema: #55b5ac;
    --saved: #dd6674; --offloaded: #eba3ab; --data: #ad8b73; --temporaries: #e0c04d; --scratch: #7f868e; --other: #ea8fb9;
  }
}
* { box-sizing: border-box; }
body { margin: 0; background: var(--page); color: var(--ink); line-height: 1.5;
  font: 15px/1.5 system-ui, -apple-system, "Segoe UI", Roboto, "DejaVu Sans", sans-serif;
  font-variant-numeric: tabular-nums; }
main { max-width: 1120px; margin: 0 auto; padding: 28px clamp(14px, 4vw, 40px) 64px; }
h1 { font-size: 26px; line-height: 1.25; margin: 0 0 6px; overflow-wrap: anywhere; }
h2 { font-size: 18px; margin: 44px 0 10px; padding-top: 14px; border-top: 1px solid var(--rule); }
h3 { font-size: 14px; margin: 24px 0 6px; color: var(--soft); }
p { margin: 6px 0; max-width: 75ch; }
small, .note { font-size: 13px; color: var(--soft); }
dl.about { display: grid; grid-template-columns: max-content 1fr; gap: 2px 16px; margin: 10px 0 22px; }
dl.about dt { color: var(--soft); }
dl.about dd { margin: 0; overflow-wrap: anywhere; }
.figures { display: grid; grid-template-columns: repeat(auto-fit, minmax(140px, 1fr)); gap: 1px;
  background: var(--surface); border: 1px solid var(--rule); border-radius: 6px; overflow: hidden; }
.figures div { padding: 12px 14px; box-shadow: 0 0 0 1px var(--rule); }
.figures span { display: block; font-size: 13px; color: var(--soft); }
.figures data { font-size: 22px; line-height: 1.3; font-weight: 600; white-space: nowrap; }
.figures small { display: block; }
figure { margin: 0; min-width: 0; }
.pair { display: grid; grid-template-columns: repeat(auto-fit, minmax(min(100%, 420px), 1fr)); gap: 26px 40px; }
.pair > :last-child:nth-child(odd) { grid-column: 1 / -1; }
figcaption { display: flex; flex-wrap: wrap; gap: 0 18px; align-items: baseline; margin: 12px 0 10px; }
.legend { display: flex; flex-wrap: wrap; gap: 2px 16px; margin: 0; max-width: none; font-size: 13px;
  color: var(--soft); }
.key { display: inline-flex; align-items: center; gap: 6px; white-space: nowrap; }
.key.thin::before, .key.bold::before { content: ""; width: 18px; border-top: 1.5px solid var(--thin); }
.key.bold::before { border-top: 2.5px solid var(--line); }
.key.dots::before { content: ""; width: 8px; height: 8px; border-radius: 4px; background: var(--dots); }
i[class^="b-"] { display: inline-block; width: 11px; height: 11px; border-radius: 2px; flex: none; }
th i[class^="b-"] { margin-right: 7px; }
.frame { display: grid; grid-template-columns: calc(var(--w) + 8px) 1fr; grid-template-rows: 240px 22px auto;
  font-size: 12px; color: var(--soft); padding-right: 14px; padding-top: 6px; }
.wide .frame { grid-template-rows: 320px 22px auto; }
.ys, .xs, .plot { position: relative; }
.ys span { position: absolute; right: 8px; transform: translateY(-50%); white-space: nowrap; }
.xs { grid-column: 2; }
.xs span { position: absolute; top: 3px; transform: translateX(-50%); white-space: nowrap; }
.x-name { grid-column: 2; text-align: right; color: var(--faint); }
.plot svg { position: absolute; width: 100%; height: 100%; overflow: visible; }
.plot path { fill: none; vector-effect: non-scaling-stroke; stroke-linejoin: round; }
.plot .grid { stroke: var(--rule); stroke-width: 1; }
.plot .mark { stroke: var(--thin); stroke-width: 1; stroke-dasharray: 3 3; }
.plot .thin { stroke: var(--thin); stroke-width: 1.2; }
.plot .bold { stroke: var(--line); stroke-width: 2; }
.plot .dots { stroke: var(--dots); stroke-width: 7; stroke-linecap: round; }
.hover { fill: transparent; }
.hover:hover { fill: var(--soft); fill-opacity: .12; }
.bar { display: grid; grid-template-columns: 96px 1fr 150px; gap: 0 12px; align-items: center; padding: 3px 0; }
.bar svg { width: 100%; height: 20px; display: block; }
.bar rect { stroke: var(--page); stroke-width: 1; vector-effect: non-scaling-stroke; }
.bar .size { white-space: nowrap; }
.bar small { display: block; font-weight: 400; }
.bar .planned { fill: none; stroke: var(--ink); stroke-width: 2; vector-effect: non-scaling-stroke; }
.bar.peak .phase, .bar.peak .size, tr.peak th, tr.peak td:nth-of-type(1) { font-weight: 650; }
.bar em, .badge { font-style: normal; font-size: 12px; font-weight: 600; color: var(--mark);
  border: 1px solid var(--mark); border-radius: 4px; padding: 0 5px; margin-left: 4px; }
.bar-axis { display: grid; grid-template-columns: 96px 1fr 150px; gap: 0 12px; font-size: 12px; color: var(--soft); }
.bar-axis div { grid-column: 2; position: relative; height: 26px; border-top: 1px solid var(--rule); }
.bar-axis span { position: absolute; top: 3px; transform: translateX(-50%); white-space: nowrap; }
.bar-axis span.last { transform: translateX(-100%); }
.bar-axis span:first-child { transform: none; }
.bars .legend { margin: 10px 0; }
.scroll { overflow-x: auto; margin: 10px 0; }
table { border-collapse: collapse; font-size: 14px; }
th, td { text-align: left; padding: 4px 14px 4px 0; border-bottom: 1px solid var(--rule); vertical-align: top;
  font-weight: 400; }
thead th { color: var(--soft); font-size: 13px; }
.number { text-align: right; white-space: nowrap; }
.none { color: var(--faint); }
.grids { display: grid; grid-template-columns: repeat(auto-fill, minmax(min(100%, 300px), 1fr)); gap: 22px; }
.grids img, .latest img { max-width: 100%; height: auto; display: block; image-rendering: pixelated; border-radius: 3px; }
.latest img { width: var(--width); }
.grids img { width: 100%; }
.grids figcaption, .latest figcaption { margin: 6px 0 0; font-size: 13px; color: var(--soft); }
.config td, .config th { font-family: ui-monospace, "DejaVu Sans Mono", Menlo, monospace; font-size: 13px; }
.config td { overflow-wrap: anywhere; }
.config .table th { padding-top: 16px; color: var(--soft); }
.config .origin, .config .unset { color: var(--faint); }
summary { cursor: pointer; color: var(--soft); margin: 12px 0; }
@media (max-width: 620px) {
  h1 { font-size: 22px; }
  .bar, .bar-axis { grid-template-columns: 1fr auto; }
  .bar svg { grid-column: 1 / 3; grid-row: 2; }
  .bar-axis div { grid-column: 1 / 3; }
  .bar { padding: 5px 0; }
  .bar .size { text-align: right; }
  dl.about { grid-template-columns: 1fr; gap: 0; }
  dl.about dd { margin-bottom: 6px; }
}
@media print { details > * { display: block; } }
)css";

}  // namespace dtk
