// A page that is opened as a file may start no worker, and the search runs in one: there it gets a
// hidden frame with the same interface instead.
if (location.protocol === "file:") {
  window.Worker = class extends EventTarget {
    constructor(url) {
      super();
      this.frame = document.createElement("iframe");
      this.frame.hidden = true;
      document.body.appendChild(this.frame);
      const inside = this.frame.contentWindow;
      inside.document.open();
      inside.document.write(
        "<script>postMessage = message => parent.postMessage(message, '*');" +
        "importScripts = (...urls) => urls.reduce((before, url) => before.then(() => new Promise(done => {" +
        "const script = document.createElement('script'); script.src = url; script.onload = done;" +
        "document.body.appendChild(script); })), Promise.resolve());</script>" +
        `<body><script src="${url}"></script></body>`
      );
      inside.document.close();
      this.ready = new Promise(done => this.frame.addEventListener("load", done, { once: true }));
      this.listener = event => {
        if (event.source !== inside) return;
        const copy = new MessageEvent("message", { data: event.data });
        this.dispatchEvent(copy);
        if (this.onmessage) this.onmessage(copy);
      };
      addEventListener("message", this.listener);
    }
    postMessage(data) {
      this.ready.then(() => this.frame.contentWindow.dispatchEvent(new MessageEvent("message", { data })));
    }
    terminate() {
      removeEventListener("message", this.listener);
      this.frame.remove();
    }
  };
}
