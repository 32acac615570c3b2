// Two browsers race for one seat. `node race.mjs URL FOLDER`; CHROMIUM names the browser.
import assert from "node:assert/strict";
import { chromium } from "playwright-core";

const [url, folder] = process.argv.slice(2);
const PATIENCE = 60_000;

const browser = () => chromium.launch({ executablePath: process.env.CHROMIUM, args: ["--no-sandbox"] });

async function visitor(name, options) {
  const launched = await browser();
  const context = await launched.newContext(options);
  context.setDefaultTimeout(PATIENCE);
  const page = await context.newPage();
  const errors = [];
  page.on("pageerror", (error) => errors.push(String(error)));
  page.on("console", (line) => {
    // A refusal is a 400, which Chromium reports as an error of its own.
    if (line.type() === "error" && !line.text().includes("400")) errors.push(line.text());
  });
  await page.goto(url + "/?client=" + name);
  await page.locator("#seats button").nth(9).waitFor();
  return { name, page, errors, close: () => launched.close() };
}

const seat = (visitor, id) => visitor.page.locator(`#seats button[data-id="${id}"]`);
const shot = (visitor, name) => visitor.page.screenshot({ path: `${folder}/${name}.png`, fullPage: true });

async function noSidewaysScroll(visitor) {
  const width = await visitor.page.evaluate(() => [document.documentElement.scrollWidth, innerWidth]);
  assert.ok(width[0] <= width[1], `${visitor.name}'s page is ${width[0]} wide in a window of ${width[1]}`);
}

const ana = await visitor("ana", { viewport: { width: 1100, height: 800 } });
const bo = await visitor("bo", {
  viewport: { width: 390, height: 844 }, isMobile: true, hasTouch: true, deviceScaleFactor: 2,
});
await shot(ana, "1-free");
await Promise.all([ana, bo].map(noSidewaysScroll));

// Both click at the same moment: one of them gets the seat, and the other one learns it at once.
const moment = Date.now() + 1_500;
await Promise.all([ana, bo].map((visitor) => seat(visitor, "3").evaluate((button, moment) => new Promise((done) => {
  setTimeout(() => done(button.click()), moment - Date.now());
}), moment)));
const winner = await Promise.any([ana, bo].map(async (visitor) => {
  await visitor.page.locator("#reservation").waitFor({ state: "visible" });
  return visitor;
}));
const loser = winner === ana ? bo : ana;
console.log(`measured: ${winner.name} won the race for seat 3`);
await loser.page.locator("#message.bad").waitFor();
assert.match(await loser.page.locator("#message").innerText(), /Seat 3 is (reserved by|being reserved)/);
assert.equal(await loser.page.locator("#reservation").isVisible(), false);
await loser.page.locator(`#seats button[data-id="3"].reserved:not(.mine)`).waitFor();
assert.match(await winner.page.locator("#countdown").innerText(), /^\d+s left$/);

// The lock under the seat, at both of them.
for (const visitor of [winner, loser]) {
  await visitor.page.locator("#lock-holder", { hasText: winner.name }).waitFor();
  assert.match(await visitor.page.locator("#lock-token").innerText(), /^\d+$/);
  assert.equal(await visitor.page.locator("#lock-line").innerText(), "nobody");
}
await shot(ana, "2-race-ana");
await shot(bo, "2-race-bo-on-a-phone");
await Promise.all([ana, bo].map(noSidewaysScroll));

// The loser takes another seat, and both pay.
await (loser === bo ? seat(bo, "4").tap() : seat(ana, "4").click());
await loser.page.locator("#reservation-text", { hasText: "Seat 4" }).waitFor();
await Promise.all([winner, loser].map((visitor) => visitor.page.locator("#book").click()));
for (const [visitor, id] of [[winner, "3"], [loser, "4"]]) {
  await visitor.page.locator("#message.good", { hasText: `Seat ${id} is yours` }).waitFor();
  await visitor.page.locator(`#seats button[data-id="${id}"].booked.mine`).waitFor();
}
for (const visitor of [winner, loser]) {
  await visitor.page.locator("#sales li").nth(1).waitFor();
  const sales = await visitor.page.locator("#sales li").allInnerTexts();
  assert.equal(sales.length, 2, `${sales}`);
}
await shot(ana, "3-sold-ana");
await shot(bo, "3-sold-bo-on-a-phone");
await Promise.all([ana, bo].map(noSidewaysScroll));

// By keyboard alone: focus shows the lock, Enter reserves, Tab and Enter pay.
await seat(winner, "7").focus();
await winner.page.keyboard.press("Enter");
await winner.page.locator("#reservation-text", { hasText: "Seat 7" }).waitFor();
await winner.page.locator("#book").focus();
await winner.page.keyboard.press("Enter");
await winner.page.locator("#message.good", { hasText: "Seat 7 is yours" }).waitFor();

assert.deepEqual([...ana.errors, ...bo.errors], []);
await Promise.all([ana.close(), bo.close()]);
console.log("two browsers raced for one seat, and one of them got it");
