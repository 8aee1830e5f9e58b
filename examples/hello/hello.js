export default function mount(element) {
  element.textContent = "Hello";
}
