/** Parts of answers that several pages show: sources, files, audio. */
export const answerTexts = {
  answer: {
    sources: "Sources",
    source: (number: number, name: string) => `Source ${number}: ${name}`,
    openSource: "Open the page",
    noText: "This source has no text.",
    unnamedSource: "Source without a name",
    download: (name: string) => `Download ${name}`,
    fileFailed: "The file could not be loaded.",
    files: "Files",
    play: (name: string) => `Play ${name}`,
    playAudio: "Play",
    audioFailed: "The audio could not be played.",
    readAloud: "the answer read aloud",
    endFailed: "Sources and files of this message could not be loaded.",
  },
} as const;
