"use strict";
// A run that still goes: asks the server for what is new, and keeps the reader where they are.

const LIVE_GONE_MS = 5000; // when the server does not answer
const SPOKEN_EVERY_MS = 20000; // how often a screen reader hears of it

let spoken = 0;

// Begins to ask, where the page was served by a run.
function follow(take) {
  const address = document.querySelector('meta[name="needlemap-live"]')?.content;
  if (address) ask(address, state.summary.live?.version ?? 0, take);
}

// The server keeps a request until it has news, and has some once a second at most. So it is asked again at once:
// a hidden tab's timers may run but once a minute, and would miss the end.
async function ask(address, version, take) {
  let next = version;
  while (state.summary.live?.state !== "ended") {
    try {
      const reply = await fetch(`${address}?since=${next}`, { cache: "no-store" });
      if (reply.status === 200) next = taken(await reply.json(), take);
      else if (reply.status !== 204) throw new Error(`status ${reply.status}`);
      at("live").classList.remove("gone");
    } catch {
      gone();
      await new Promise((done) => setTimeout(done, LIVE_GONE_MS));
    }
  }
}

function taken(news, take) {
  take(news.summary, news.trials);
  drawLive(news.summary.live);
  at("live-updated").textContent = `updated ${clock()}`;
  if (Date.now() - spoken > SPOKEN_EVERY_MS || news.summary.live?.state === "ended") {
    spoken = Date.now();
    announce(news.summary.live?.line ?? "updated");
  }
  return news.version;
}

function drawLive(live) {
  at("live").hidden = !live;
  if (!live) return;
  at("live").dataset.state = live.state;
  put(at("live-line"), visible(live.line));
}

// The run's process is over or cannot be reached: what is shown stays.
function gone() {
  const line =
    "The run does not answer any more. The map is as it was at the last update; the run folder holds everything.";
  if (!at("live").classList.contains("gone")) announce(line);
  at("live").hidden = false;
  at("live").classList.add("gone");
  at("live-updated").textContent = line;
}

function clock() {
  return new Date().toLocaleTimeString("en-GB");
}
