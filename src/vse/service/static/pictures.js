// A picture to search with: dropped on the page, pasted, or chosen.

import { byId } from "./dom.js";

const LARGE = 3e6; // bytes; uploading a photograph of 30 MB would take longer than the search
const SIDE = 1024; // pixels, more than any model looks at

export function listenForPictures(use) {
  const given = async (files) => {
    const file = [...files].find((each) => each.type.startsWith("image/")) ?? files[0];
    if (file) use(await smaller(file));
  };
  byId("pick").addEventListener("click", () => byId("file").click());
  byId("file").addEventListener("change", async (event) => {
    await given(event.target.files);
    event.target.value = ""; // the same file may be chosen again
  });
  document.addEventListener("paste", (event) => {
    if (!event.clipboardData?.files.length) return; // words, which go where they belong
    event.preventDefault();
    given(event.clipboardData.files);
  });
  listenForDrops(given);
}

function listenForDrops(given) {
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
    given(event.dataTransfer.files);
  });
}

async function smaller(file) {
  if (file.size <= LARGE) return file;
  try {
    const picture = await createImageBitmap(file);
    const scale = Math.min(1, SIDE / Math.min(picture.width, picture.height));
    const canvas = new OffscreenCanvas(Math.round(picture.width * scale), Math.round(picture.height * scale));
    const context = canvas.getContext("2d");
    context.imageSmoothingQuality = "high";
    context.drawImage(picture, 0, 0, canvas.width, canvas.height);
    picture.close();
    return await canvas.convertToBlob({ type: "image/jpeg", quality: 0.92 });
  } catch {
    return file; // a kind that the browser cannot read: the server may
  }
}
