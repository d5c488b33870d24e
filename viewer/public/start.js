// Loaded before everything else, under a fixed name: sets theme, density and motion before anything is drawn, and loads the page again
// if a file of it is missing because Easel is being updated.
(function () {
  "use strict";
  var KEY = "easel.reloads", TRIES = 10, isWaiting = false;

  function read(storage, key) { // in a frame of another site the storage itself may be refused
    try { return window[storage].getItem(key); } catch { return null; }
  }

  var given = new URLSearchParams(location.search).get("theme"); // of the page that shows a chat in a frame
  var theme = given === "light" || given === "dark" ? given : read("localStorage", "easel.theme");
  var html = document.documentElement.dataset;
  var isChosen = theme === "light" || theme === "dark", isHigh = theme === "contrast";
  var isDark = theme === "dark" || (!isChosen && matchMedia("(prefers-color-scheme: dark)").matches);
  html.theme = isDark ? "dark" : "light";
  html.contrast = isHigh || (!isChosen && matchMedia("(prefers-contrast: more)").matches) ? "more" : "normal";
  html.density = read("localStorage", "easel.density") === "compact" ? "compact" : "normal";
  html.motion = read("localStorage", "easel.motion") === "off" ? "off" : "system";

  function show(text) {
    var root = document.getElementById("root");
    if (root) root.textContent = text;
  }

  addEventListener("error", function (event) {
    var failed = event.target;
    if (isWaiting || !(failed instanceof HTMLScriptElement || failed instanceof HTMLLinkElement)) return;
    if (failed.rel === "icon" || document.querySelector("main")) return; // a page that is shown stays, and says what is missing
    isWaiting = true;
    var tries = Number(read("sessionStorage", KEY)) || 0;
    var text = "Easel is being updated";
    if (tries >= TRIES) {
      text += ". Its files could not be loaded in " + TRIES + " tries: reload the page in a moment.";
    } else {
      try { sessionStorage.setItem(KEY, String(tries + 1)); } catch { tries = TRIES; }
      if (tries < TRIES) setTimeout(function () { location.reload(); }, 1000);
    }
    if (document.getElementById("root")) show(text);
    else addEventListener("DOMContentLoaded", function () { show(text); });
  }, true);

  addEventListener("easel:started", function () {
    var left = 40; // quarters of a second: later than a file of the first page could fail
    (function look() {
      if (left-- > 0 && !document.querySelector('main[data-ready="1"]')) return setTimeout(look, 250);
      try { sessionStorage.removeItem(KEY); } catch { /* without storage there is no counter */ }
    })();
  });
})();
