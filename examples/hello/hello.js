export function mount(element) {
  element.textContent = "Hello";
}
