// Mouse, touch and keyboard.

import { byId } from "weft/dom.js";

export function listen(app) {
  listenToPointer(app);
  listenToWheel(app);
  listenToKeys(app);
  listenToDivider();
  listenToPrint(app);
}

function listenToPointer(app) {
  const { canvas, camera } = app;
  const held = new Map(); // by pointer, where it is
  let moved = 0;
  canvas.addEventListener("pointerdown", (event) => {
    app.hover(null);
    canvas.setPointerCapture(event.pointerId);
    held.set(event.pointerId, [event.offsetX, event.offsetY]);
    moved = 0;
  });
  canvas.addEventListener("pointermove", (event) => {
    const last = held.get(event.pointerId);
    if (!last) return point(app, event);
    const [dx, dy] = [event.offsetX - last[0], event.offsetY - last[1]];
    if (held.size === 2) pinch(camera, held, event);
    else camera.pan(dx, dy);
    held.set(event.pointerId, [event.offsetX, event.offsetY]);
    moved += Math.abs(dx) + Math.abs(dy);
    canvas.classList.toggle("dragging", moved > 4);
  });
  canvas.addEventListener("pointerup", (event) => {
    const wasHeld = held.delete(event.pointerId);
    canvas.classList.remove("dragging");
    if (wasHeld && moved <= 4) click(app, event);
  });
  canvas.addEventListener("pointercancel", (event) => held.delete(event.pointerId));
  canvas.addEventListener("pointerleave", () => app.hover(null));
}

function point(app, event) {
  const box = app.camera.boxAt(event.offsetX, event.offsetY);
  app.canvas.classList.toggle("over", Boolean(box?.inTitle));
  app.hover(box);
  const tip = byId("tip");
  if (tip.hidden) return;
  const left = Math.min(event.offsetX + 14, app.camera.w - tip.offsetWidth - 6);
  const top = Math.min(event.offsetY + 16, app.camera.h - tip.offsetHeight - 6);
  tip.style.left = `${left}px`;
  tip.style.top = `${top}px`;
}

function pinch(camera, held, event) {
  const [other] = [...held].filter(([id]) => id !== event.pointerId).map(([, at]) => at);
  const last = held.get(event.pointerId);
  const before = Math.hypot(last[0] - other[0], last[1] - other[1]);
  const after = Math.hypot(event.offsetX - other[0], event.offsetY - other[1]);
  camera.zoom(after / Math.max(1, before), (event.offsetX + other[0]) / 2, (event.offsetY + other[1]) / 2);
}

/** A click on a closed group opens it, on the title of an open one closes it; on a node it chooses. */
function click(app, event) {
  const box = app.camera.boxAt(event.offsetX, event.offsetY);
  if (!box || (box.open && !box.inTitle)) return app.choose(null);
  app.choose(box.item);
  if (box.item.isGroup) app.toggle(box.item);
}

function listenToWheel(app) {
  app.canvas.addEventListener(
    "wheel",
    (event) => {
      event.preventDefault();
      const lines = event.deltaMode === 1 ? 16 : 1;
      if (event.shiftKey) app.camera.pan(-event.deltaY * lines - event.deltaX * lines, 0);
      else app.camera.zoom(Math.exp(-event.deltaY * lines * (event.ctrlKey ? 0.01 : 0.0016)), event.offsetX, event.offsetY);
    },
    { passive: false },
  );
}

function listenToKeys(app) {
  const actions = {
    "/": () => byId("search").focus(),
    "?": () => byId("keys").showModal(),
    "+": () => app.camera.zoom(1.25),
    "=": () => app.camera.zoom(1.25),
    "-": () => app.camera.zoom(0.8),
    f: () => app.camera.fit(),
    e: () => app.openAll(true),
    c: () => app.openAll(false),
    t: () => app.setTheme(!app.isDark),
    m: () => app.memory.toggle(),
    "[": () => app.setStage(app.stage - 1),
    "]": () => app.setStage(app.stage + 1),
    " ": () => app.player?.toggle(),
    ",": () => app.player?.step(-1),
    ".": () => app.player?.step(1),
    Enter: () => app.chosen?.isGroup && app.toggle(app.chosen),
    Escape: () => letGo(app),
    ArrowDown: () => go(app, "down"),
    ArrowUp: () => go(app, "up"),
    ArrowLeft: () => beside(app, -1),
    ArrowRight: () => beside(app, 1),
  };
  addEventListener("keydown", (event) => {
    const action = actions[event.key];
    if (!action || isForField(event) || event.ctrlKey || event.metaKey || event.altKey || byId("keys").open) return;
    event.preventDefault();
    app.hover(null);
    action();
  });
  addEventListener("blur", () => app.hover(null));
}

/** Whether a key means something to the element that has the focus. */
function isForField({ target, key }) {
  if (target.matches("#canvas, body")) return false;
  return key === " " || key === "Enter" || key.startsWith("Arrow");
}

function letGo(app) {
  if (app.player?.isOn) {
    app.player.toggle(false);
    app.player.goTo(-1);
  }
  app.choose(null);
  byId("card").hidden = true;
}

/** Go along a line: to what the chosen item takes from, or to what uses it. */
function go(app, way) {
  const here = app.chosen && app.tree.visible(app.chosen);
  if (!here) return beside(app, 1);
  for (const { item } of app.tree.net.around(here, way === "down" ? "outs" : "ins")) {
    const next = app.tree.visible(item);
    if (next !== here && app.camera.scene.at.has(next)) return app.choose(next, { go: true });
  }
}

function beside(app, by) {
  const boxes = app.camera.scene.boxes.filter((b) => !b.open);
  const here = app.chosen && app.tree.visible(app.chosen);
  const at = boxes.findIndex((b) => b.item === here);
  const next = boxes[(at + by + boxes.length) % boxes.length];
  if (next) app.choose(next.item, { go: true });
}

function listenToDivider() {
  const divider = byId("divider");
  divider.addEventListener("pointerdown", (event) => divider.setPointerCapture(event.pointerId));
  divider.addEventListener("pointermove", (event) => {
    if (!divider.hasPointerCapture(event.pointerId)) return;
    document.documentElement.style.setProperty("--side", `${Math.max(240, innerWidth - event.clientX)}px`);
  });
}

/** Print on white, the whole graph. */
function listenToPrint(app) {
  let before;
  addEventListener("beforeprint", () => {
    before = { dark: app.isDark, at: app.camera.at };
    app.setTheme(false);
    app.camera.fit(undefined, false);
    app.camera.drawAll(app.camera.scene, app.look());
  });
  addEventListener("afterprint", () => {
    app.camera.at = before.at;
    app.setTheme(before.dark);
  });
}
