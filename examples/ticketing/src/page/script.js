"use strict";

const element = (id) => document.getElementById(id);
const NAMES = ["ana", "bo", "cy", "dee", "eli", "fay", "gus", "hana", "ivo", "jo", "kim", "leo"];

/** The last state that the service sent, and what its clock is ahead of ours. */
let state = null;
let clockAheadMs = 0;
/** The seat whose lock is shown. */
let selected = null;
let booking = false;
/** The lock of the selected seat, as the lock service last said: {id, lock}. */
let seen = { id: null, lock: null };
let looking = false;

/** What the service takes for a name at most. */
const NAME_BYTES_MAX = 100;

function myName() {
  return element("client").value.trim();
}

/** `maxlength` counts UTF-16 units, the service counts bytes. */
function shortened(name) {
  const bytes = new TextEncoder();
  const letters = Array.from(name);
  while (bytes.encode(letters.join("")).length > NAME_BYTES_MAX) letters.pop();
  return letters.join("");
}

function startName() {
  const asked = new URLSearchParams(location.search).get("client");
  const random = NAMES[Math.floor(Math.random() * NAMES.length)] + "-" + Math.floor(100 + Math.random() * 900);
  const input = element("client");
  input.value = shortened(asked || localStorage.getItem("client") || random);
  input.addEventListener("input", () => {
    if (shortened(input.value) !== input.value) input.value = shortened(input.value);
    localStorage.setItem("client", myName());
    show();
  });
  if (!asked) localStorage.setItem("client", input.value);
}

function message(text, kind) {
  element("message").textContent = text;
  element("message").className = kind || "";
}

async function post(path, ticket) {
  const body = JSON.stringify({ ticket_id: ticket, client_id: myName() });
  try {
    const response = await fetch(path, {
      method: "POST",
      headers: { "Content-Type": "application/json" },
      body,
    });
    return { ok: response.ok, ...(await response.json()) };
  } catch {
    return { ok: false, message: "the service does not answer; try again" };
  }
}

/** What a refusal means to somebody who wants a seat. */
const WORDS = {
  unavailable: "the shop can't do that at the moment; try again in a few seconds",
  expired: "your time for this seat is over, and you were not charged; pick it again if it is still free",
  fenced: "your time for this seat was over, and somebody else has it now; you were not charged",
  not_reserved: "this seat is not reserved for you any more; pick it again",
  payment_declined: "the payment was declined; the seat is still yours until the countdown ends",
};

function sentence(answer) {
  const text = WORDS[answer.code]
    || (answer.message || "that did not work").replace(/\bticket (\d+)/g, "seat $1")
      .replace(/^invalid client_id: it/, "your name can't be used: it");
  return text.charAt(0).toUpperCase() + text.slice(1) + ".";
}

async function reserve(id) {
  message("");
  const answer = await post("/reserve_ticket", id);
  if (!answer.ok) message(sentence(answer), "bad");
}

async function book() {
  const mine = myReservation();
  if (!mine || booking) return;
  booking = true;
  show();
  message("Paying...");
  const answer = await post("/book_ticket", mine.id);
  booking = false;
  if (answer.ok) message("Seat " + mine.id + " is yours. Enjoy!", "good");
  else message(sentence(answer), "bad");
  show();
}

function msLeft(ticket) {
  if (ticket.until_ms == null) return Infinity;
  return ticket.until_ms - (Date.now() + clockAheadMs);
}

/** What the seat is now: a reservation ends without anybody saying so. */
function stateOf(ticket) {
  return ticket.state === "reserved" && msLeft(ticket) <= 0 ? "available" : ticket.state;
}

function isMine(ticket) {
  return ticket.client === myName() && stateOf(ticket) !== "available";
}

function myReservation() {
  const mine = (state ? state.tickets : []).filter((t) => isMine(t) && stateOf(t) === "reserved");
  return mine.find((ticket) => ticket.id === selected) || mine[0] || null;
}

function seatButton(id) {
  const button = document.createElement("button");
  button.type = "button";
  button.dataset.id = id;
  button.append(document.createElement("b"), document.createElement("small"));
  button.addEventListener("focus", () => select(id));
  button.addEventListener("click", () => {
    select(id);
    const ticket = state.tickets.find((ticket) => ticket.id === id);
    const now = stateOf(ticket);
    if (now === "available") reserve(id);
    else if (isMine(ticket)) message("");
    else message("Seat " + id + " is " + (now === "booked" ? "sold to " : "reserved by ") + ticket.client + ".", "bad");
  });
  return button;
}

function select(id) {
  selected = id;
  show();
  look();
}

/** Asks for the lock of the selected seat: each look is a request to the lock service. */
async function look() {
  if (!selected || !state || !state.engine || looking) return;
  const id = selected;
  looking = true;
  try {
    const response = await fetch("/lock/" + id);
    const lock = await response.json();
    seen = { id, lock: response.ok ? lock : { error: "the shop does not say" } };
  } catch {
    seen = { id, lock: { error: "the shop does not answer" } };
  }
  looking = false;
  showLock();
  if (selected !== id) look();
}

function showSeats() {
  const seats = element("seats");
  if (seats.childElementCount !== state.tickets.length) {
    seats.replaceChildren(...state.tickets.map((ticket) => seatButton(ticket.id)));
  }
  state.tickets.forEach((ticket, place) => {
    const button = seats.children[place];
    const now = stateOf(ticket);
    const mine = isMine(ticket);
    const who = mine ? "you" : ticket.client;
    const text = { available: "free", reserved: who + (mine ? "" : " is paying"), booked: who }[now];
    button.className = ["seat", now, mine ? "mine" : "", ticket.id === selected ? "selected" : ""].join(" ");
    button.firstChild.textContent = ticket.id;
    button.title = now === "available" ? "" : ticket.client;
    button.lastChild.textContent = now === "reserved" && mine ? "you: pay now" : text;
    button.setAttribute("aria-label", "Seat " + ticket.id + ", " + (now === "booked" ? "sold to " + who : text));
  });
}

function showReservation() {
  const mine = myReservation();
  element("reservation").hidden = !mine;
  if (!mine) return;
  element("reservation-text").textContent = "Seat " + mine.id + " is reserved for you";
  const left = msLeft(mine);
  const endless = left === Infinity;
  element("countdown").textContent = endless ? "without an end" : Math.ceil(left / 1000) + "s left";
  element("time-left").value = endless ? 1 : left / (state.reserve_seconds * 1000);
  element("book").disabled = booking;
  element("book").textContent = booking ? "Paying..." : "Pay and book seat " + mine.id;
}

function showSales() {
  const sale = ({ ticket_id, client_id, token }) => {
    const item = document.createElement("li");
    const who = client_id === myName() ? "you" : client_id;
    item.textContent = "Seat " + ticket_id + ": " + who + (token == null ? "" : " (token " + token + ")");
    item.title = client_id;
    return item;
  };
  element("sales").replaceChildren(...state.sales.map(sale));
  element("no-sales").hidden = state.sales.length > 0;
}

function showLock() {
  const ticket = state.tickets.find((ticket) => ticket.id === selected);
  element("lock-hint").hidden = Boolean(ticket);
  element("lock-facts").hidden = !ticket;
  const engine = state.engine;
  element("engine").textContent = engine
    ? "LOCK_TYPE=" + state.lock_type + ", engine " + engine.name + " (" + engine.recipe + "). " +
      (engine.token ? "The sale shows the lock's token to the fence."
        : "This engine has no tokens: the sale compares the row's number.") +
      " You are at instance " + state.instance + "."
    : "LOCK_TYPE=" + state.lock_type + " has no lock: it is here to show what goes wrong.";
  if (!ticket) return;
  element("lock-seat").textContent = "seat " + ticket.id;
  const known = seen.id === ticket.id;
  const held = known ? seen.lock : null;
  const lock = held || {};
  const token = lock.token ?? ticket.token;
  const fact = (name, value) => { element("lock-" + name).textContent = value; };
  fact("state", !known ? "..." : lock.error ? "unknown: " + lock.error : held ? "held" : "nobody holds it");
  fact("holder", lock.holder || "-");
  fact("token", token ?? "-");
  const line = lock.line;
  fact("line", !held || lock.error ? "-" : line ? (line.length ? line.join(", ") : "nobody") : "this engine can't say");
  fact("ending", ticket.last_ending || "-");
  fact("number", ticket.number);
  fact("instance", stateOf(ticket) === "reserved" ? ticket.instance : "-");
}

function show() {
  if (!state) return;
  showSeats();
  showReservation();
  showSales();
  showLock();
}

function offline(why) {
  element("offline").textContent = why;
  element("offline").hidden = !why;
}

function listen() {
  const events = new EventSource("/events");
  events.addEventListener("message", (event) => {
    const news = JSON.parse(event.data);
    if (news.error) {
      offline("The service has a problem: " + news.error);
      return;
    }
    offline(news.trouble ? "Nothing can be reserved or paid at the moment: " + news.trouble : "");
    state = news;
    clockAheadMs = news.now_ms - Date.now();
    show();
    look();
  });
  // The browser connects again by itself.
  events.addEventListener("error", () => offline("The service does not answer. What you see may be out of date."));
}

startName();
element("book").addEventListener("click", book);
listen();
setInterval(() => {
  if (!state) return;
  showSeats();
  showReservation();
}, 250);
