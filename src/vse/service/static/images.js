// Images to search by: dropped on the page, pasted, or chosen.

import { byId } from "./dom.js";

const LARGE = 3e6; // bytes; uploading an image of 30 MB would take longer than the search
const SIDE = 1024; // pixels, more than any model uses

export function listenForImages(use) {
  const receive = async (files) => {
    const file = [...files].find((each) => each.type.startsWith("image/")) ?? files[0];
    if (file) use(await smaller(file));
  };
  byId("pick").addEventListener("click", () => byId("file").click());
  byId("file").addEventListener("change", async (event) => {
    await receive(event.target.files);
    event.target.value = ""; // the same file may be chosen again
  });
  document.addEventListener("paste", (event) => {
    if (!event.clipboardData?.files.length) return; // text is pasted as usual
    event.preventDefault();
    receive(event.clipboardData.files);
  });
  listenForDrops(receive);
}

function listenForDrops(receive) {
  let depth = 0; // entering a child leaves its parent
  const hide = () => {
    depth = 0;
    byId("drop").hidden = true;
  };
  const carriesFiles = (event) => event.dataTransfer?.types.includes("Files");
  document.addEventListener("dragenter", (event) => {
    if (!carriesFiles(event)) return;
    depth += 1;
    byId("drop").hidden = false;
  });
  document.addEventListener("dragleave", (event) => {
    if (!carriesFiles(event)) return;
    depth -= 1;
    if (depth <= 0) hide();
  });
  // Without these two the browser would leave the page and show the file.
  document.addEventListener("dragover", (event) => carriesFiles(event) && event.preventDefault());
  document.addEventListener("drop", (event) => {
    if (!carriesFiles(event)) return;
    event.preventDefault();
    hide();
    receive(event.dataTransfer.files);
  });
}

async function smaller(file) {
  if (file.size <= LARGE) return file;
  try {
    const image = await createImageBitmap(file);
    const scale = Math.min(1, SIDE / Math.min(image.width, image.height));
    const canvas = new OffscreenCanvas(Math.round(image.width * scale), Math.round(image.height * scale));
    const context = canvas.getContext("2d");
    context.imageSmoothingQuality = "high";
    context.drawImage(image, 0, 0, canvas.width, canvas.height);
    image.close();
    return await canvas.convertToBlob({ type: "image/jpeg", quality: 0.92 });
  } catch {
    return file; // a format that the browser cannot decode: the server may
  }
}
