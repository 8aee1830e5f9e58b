// Focus Timer: 25 minutes of work. From version 0.5 on, it counts the finished rounds.
export const name = "acme-labs/focus-timer";
export const version = "VERSION";

const countsRounds = Number(version.split(".")[1]) >= 5;

export function mount(element, settings = {}) {
  const length = (settings.minutes ?? 25) * 60;
  let left = length;
  let rounds = 0;
  let timer;
  const clock = document.createElement("div");
  clock.style.cssText = "font: 600 2em system-ui; font-variant-numeric: tabular-nums";
  const button = document.createElement("button");
  const score = document.createElement("div");

  function show() {
    const seconds = String(left % 60).padStart(2, "0");
    clock.textContent = `🍅 ${Math.floor(left / 60)}:${seconds}`;
    button.textContent = timer ? "Pause" : "Start";
    score.textContent = `Rounds: ${rounds}`;
  }

  function stop() {
    clearInterval(timer);
    timer = undefined;
  }

  function tick() {
    left -= 1;
    if (left === 0) {
      stop();
      left = length;
      rounds += 1;
    }
    show();
  }

  button.addEventListener("click", () => {
    if (timer) stop();
    else timer = setInterval(tick, 1000);
    show();
  });
  show();
  element.append(clock, button, ...(countsRounds ? [score] : []));
  return stop;
}
