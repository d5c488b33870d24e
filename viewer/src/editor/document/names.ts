/** Ids and names of new nodes. Ids are like RAGFlow's: `LLM:BraveFoxesSing`. */
import { nodesOf, type Document } from "./document";

const FIRST = ["Brave", "Bright", "Calm", "Clever", "Cool", "Early", "Eager", "Fair", "Fancy", "Fast", "Fresh", "Gentle", "Giant", "Golden", "Good", "Green", "Happy", "Kind", "Late", "Light", "Lucky", "Merry", "New", "Nice", "Noble", "Odd", "Plain", "Proud", "Quick", "Quiet", "Rare", "Red", "Rich", "Sharp", "Shy", "Silver", "Small", "Smart", "Soft", "Strong", "Sweet", "Swift", "Tall", "Tidy", "Warm", "Wide", "Wild", "Wise"];
const SECOND = ["Apples", "Bears", "Birds", "Boats", "Books", "Boxes", "Cats", "Clouds", "Coins", "Cups", "Deers", "Doors", "Ducks", "Eagles", "Fields", "Fish", "Foxes", "Frogs", "Geese", "Hats", "Hills", "Horses", "Keys", "Lakes", "Lamps", "Leaves", "Lions", "Maps", "Mice", "Moons", "Owls", "Pears", "Pens", "Pets", "Plums", "Rings", "Rivers", "Roses", "Ships", "Shoes", "Songs", "Stars", "Stones", "Suns", "Towns", "Trains", "Trees", "Waves"];
const THIRD = ["Act", "Arrive", "Bake", "Begin", "Bow", "Build", "Call", "Carry", "Chat", "Cheer", "Climb", "Cook", "Dance", "Draw", "Dream", "Fly", "Glow", "Grow", "Guess", "Help", "Hide", "Jump", "Knit", "Laugh", "Learn", "Listen", "March", "Meet", "Mix", "Move", "Paint", "Play", "Read", "Rest", "Ride", "Run", "Sail", "Shine", "Sing", "Sit", "Skate", "Sleep", "Smile", "Stay", "Swim", "Talk", "Walk", "Write"];

export type Random = () => number;

/** Return an id that no node of the document has. */
export function newNodeId(document: Document, label: string, random: Random = Math.random): string {
  const pick = (words: readonly string[]): string => words[Math.floor(random() * words.length)] ?? "";
  const nodes = nodesOf(document);
  for (;;) {
    const id = `${label}:${pick(FIRST)}${pick(SECOND)}${pick(THIRD)}`;
    if (!nodes.has(id)) return id;
  }
}

/** Return the name of a new node: the one that is wanted, with a number if it exists. */
export function newName(document: Document, wanted: string): string {
  const names = new Set([...nodesOf(document).values()].map((node) => node.name));
  for (let number = 1; ; number++) {
    const name = number === 1 ? wanted : `${wanted} ${number}`;
    if (!names.has(name)) return name;
  }
}
