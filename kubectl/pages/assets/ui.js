// SPDX-License-Identifier: Apache-2.0

// Reads the page again every few seconds while it is visible. It changes only the elements that
// differ, so the focus, the selection and the scroll positions stay.

const interval = Number(document.body.dataset.refresh);
const state = document.getElementById("state");
const pause = document.getElementById("pause");
const paused = () => sessionStorage.getItem("paused") === "yes";
let timer = 0;
let running = false;

// say announces a change of the state only.
function say(text, failing) {
  if (state.textContent !== text) state.textContent = text;
  state.classList.toggle("failing", Boolean(failing));
}

function key(node) {
  return node.nodeType === Node.ELEMENT_NODE ? node.dataset.key || node.id || "" : "";
}

function alike(a, b) {
  return a.nodeType === b.nodeType && a.nodeName === b.nodeName && key(a) === key(b);
}

function morphAttributes(from, to) {
  for (const { name } of [...from.attributes]) {
    // The user opens details.
    if (!to.hasAttribute(name) && !(from.nodeName === "DETAILS" && name === "open")) from.removeAttribute(name);
  }
  for (const { name, value } of to.attributes) {
    if (from.getAttribute(name) !== value) from.setAttribute(name, value);
  }
}

// morph changes a node until it is as the other one.
function morph(from, to) {
  if (from.nodeType !== Node.ELEMENT_NODE) {
    if (from.nodeValue !== to.nodeValue) from.nodeValue = to.nodeValue;
    return;
  }
  morphAttributes(from, to);
  const wanted = new Set([...to.childNodes].map(key).filter(Boolean));
  for (const child of [...from.childNodes]) {
    if (key(child) && !wanted.has(key(child))) child.remove();
  }
  let at = from.firstChild;
  for (const next of to.childNodes) {
    let match = at;
    if (!at || !alike(at, next)) {
      match = key(next) ? [...from.childNodes].find((child) => alike(child, next)) : undefined;
    }
    if (!match) {
      from.insertBefore(document.importNode(next, true), at);
      continue;
    }
    if (match !== at) from.insertBefore(match, at);
    morph(match, next);
    at = match.nextSibling;
  }
  while (at) {
    const next = at.nextSibling;
    at.remove();
    at = next;
  }
}

// later reads the page again after a while.
function later() {
  clearTimeout(timer);
  if (!paused() && !document.hidden) timer = setTimeout(load, interval);
}

let again = false;

// load reads the page once. It reads it again if that is wanted meanwhile.
async function load() {
  again = running;
  if (running) return;
  running = true;
  const address = location.href;
  try {
    const answer = await fetch(address, { headers: { Accept: "text/html" } });
    if (answer.status === 401) throw new Error("the program has been started anew: open the address that it has printed");
    const page = new DOMParser().parseFromString(await answer.text(), "text/html");
    const main = page.getElementById("main");
    if (!main) throw new Error(`the answer has the status ${answer.status}`);
    if (address === location.href) {
      morph(document.getElementById("main"), main);
      morph(document.getElementById("menu"), page.getElementById("menu"));
      document.title = page.title;
    }
    if (!paused()) say(`Live, every ${interval / 1000} s` + (answer.ok ? "" : ", with a problem"), !answer.ok);
  } catch (error) {
    say(error instanceof TypeError ? "kubectl gpu ui does not answer" : `Not live: ${error.message}`, true);
  } finally {
    running = false;
    if (again) load();
    else later();
  }
}

function show() {
  pause.textContent = paused() ? "Resume" : "Pause";
  if (paused()) say("Paused");
  if (paused() || document.hidden) clearTimeout(timer);
  else load();
}

// A heading that sorts changes the rows and keeps the focus.
document.addEventListener("click", (event) => {
  const link = event.target.closest?.("thead a");
  if (!link || event.ctrlKey || event.metaKey || event.shiftKey || event.button !== 0) return;
  event.preventDefault();
  history.pushState(null, "", link.href);
  load();
});
addEventListener("popstate", load);

pause.hidden = false;
pause.addEventListener("click", () => {
  sessionStorage.setItem("paused", paused() ? "no" : "yes");
  show();
});
document.addEventListener("visibilitychange", show);
show();
