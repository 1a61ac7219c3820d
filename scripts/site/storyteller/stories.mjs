// Makes up short stories by a grammar, for the storyteller: a small language model that the site shows. Each story has a child, a friend, an
// animal with a name, a thing with a color, two places and a weather, and stays true to them from the first sentence to the last.

/** @typedef {() => number} Random numbers from 0 to 1 */

const girls = ['Mia', 'Anna', 'Lily', 'Nora', 'Ella', 'Rosa', 'Ida', 'Clara', 'Eva', 'Jane', 'Lucy', 'Sara'];
const boys = ['Tom', 'Ben', 'Max', 'Leo', 'Sam', 'Paul', 'Otto', 'Jack', 'Finn', 'Adam', 'Noah', 'Hugo'];
const animals = ['dog', 'cat', 'rabbit', 'goat', 'duck', 'pony', 'hen', 'fox', 'mouse', 'donkey'];
const animalNames = ['Rex', 'Pip', 'Dot', 'Fluff', 'Bruno', 'Coco', 'Pepper', 'Sunny', 'Moss', 'Biscuit'];
const colors = ['red', 'blue', 'green', 'yellow', 'white', 'black', 'silver', 'brown'];
const things = ['kite', 'ball', 'hat', 'drum', 'lamp', 'book', 'boat', 'scarf', 'basket', 'bell', 'cup', 'key'];
const places = [
  'river',
  'mill',
  'garden',
  'hill',
  'forest',
  'market',
  'harbor',
  'bridge',
  'lake',
  'barn',
  'school',
  'station',
];
/** Words before a place other than "at". */
const before = { garden: 'in', forest: 'in', hill: 'on', barn: 'in', bridge: 'on' };
const spots = [
  'under a bench',
  'behind a tree',
  'in the tall grass',
  'near the door',
  'on a wall',
  'beside a big stone',
];
const foods = ['bread', 'soup', 'apples', 'cake', 'cheese', 'milk', 'berries', 'pancakes'];

/** Weathers: an adjective of a day, a sentence about it, and what it does later. */
const weathers = [
  { day: 'sunny', now: 'The sun was warm.', later: 'The sun was still shining.' },
  { day: 'rainy', now: 'The rain fell on the roofs.', later: 'The rain had stopped at last.' },
  { day: 'windy', now: 'The wind shook the trees.', later: 'The wind was quiet now.' },
  { day: 'cold', now: 'There was snow on the road.', later: 'It began to snow again.' },
  { day: 'foggy', now: 'The fog hid the houses.', later: 'The fog was gone.' },
  { day: 'warm', now: 'The sky was blue.', later: 'The first stars came out.' },
];

/** A seeded generator of numbers from 0 to 1 (mulberry32). @param {number} seed @returns {Random} */
export function generator(seed) {
  let state = seed >>> 0;
  return () => {
    state = (state + 0x6d2b79f5) >>> 0;
    let mixed = Math.imul(state ^ (state >>> 15), state | 1);
    mixed ^= mixed + Math.imul(mixed ^ (mixed >>> 7), mixed | 61);
    return ((mixed ^ (mixed >>> 14)) >>> 0) / 2 ** 32;
  };
}

/** Two different members of a list. @template T @param {readonly T[]} list @param {Random} random @returns {[T, T]} */
function two(list, random) {
  const first = Math.floor(random() * list.length);
  const second = (first + 1 + Math.floor(random() * (list.length - 1))) % list.length;
  return [list[first], list[second]];
}

/** The people and things of a story. @param {Random} random */
function castOf(random) {
  const pick = (list) => list[Math.floor(random() * list.length)];
  const people = two([...girls, ...boys], random).map((name) => {
    const isGirl = girls.includes(name);
    return {
      name,
      he: isGirl ? 'she' : 'he',
      him: isGirl ? 'her' : 'him',
      his: isGirl ? 'her' : 'his',
      child: isGirl ? 'girl' : 'boy',
    };
  });
  const [color, otherColor] = two(colors, random);
  const [thing, otherThing] = two(things, random);
  const [place, elsewhere] = two(places, random);
  const [food, otherFood] = two(foods, random);
  const grown = pick(['mother', 'father', 'grandmother', 'grandfather', 'aunt', 'uncle']);
  return {
    hero: people[0],
    friend: people[1],
    animal: pick(animals),
    pet: pick(animalNames),
    thing: `${color} ${thing}`,
    other: `${otherColor} ${otherThing}`,
    place: `the ${place}`,
    elsewhere: `the ${elsewhere}`,
    there: `${before[place] ?? 'at'} the ${place}`,
    away: `${before[elsewhere] ?? 'at'} the ${elsewhere}`,
    spot: pick(spots),
    food,
    otherFood,
    grown,
    weather: pick(weathers),
    time: pick(['morning', 'afternoon', 'day', 'evening']),
  };
}

const upper = (text) => text[0].toUpperCase() + text.slice(1);

/** Beginning of a story. @param {ReturnType<typeof castOf>} c @param {(list: string[]) => string} pick */
function opening(c, pick) {
  const { hero: h, animal, pet, thing, place, weather } = c;
  const first = pick([
    `One ${weather.day} ${c.time}, ${h.name} went to ${place} with a ${animal} named ${pet}.`,
    `${h.name} was a ${h.child} who lived near ${place}. ${upper(h.he)} had a ${animal} named ${pet}.`,
    `Once there was a ${h.child} named ${h.name}. ${upper(h.he)} had a ${animal}, and the ${animal} was named ${pet}.`,
    `It was a ${weather.day} ${c.time}. ${h.name} and ${h.his} ${animal} ${pet} walked to ${place}.`,
    `${h.name} had a ${animal} named ${pet}. One ${weather.day} ${c.time} they went to ${place}.`,
  ]);
  const second = pick([
    `${weather.now} ${h.name} had a ${thing}, and ${h.he} loved it very much.`,
    `${h.name} carried a ${thing}. It was a gift from ${h.his} ${c.grown}.`,
    `${upper(h.his)} ${c.grown} had given ${h.him} a ${thing}. ${weather.now}`,
    `In ${h.his} hand ${h.he} had a ${thing}. ${weather.now}`,
  ]);
  return `${first} ${second}`;
}

/** @type {((c: ReturnType<typeof castOf>, pick: (list: string[]) => string) => string)[]} */
const plots = [
  // The thing is lost, and somebody finds it.
  (c, pick) => {
    const { hero: h, friend: f, animal, pet, thing, elsewhere, spot } = c;
    const [, noun] = thing.split(' ');
    const found = pick(['pet', 'friend']);
    const finds =
      found === 'pet'
        ? `${pet} ran to ${elsewhere} and sat down ${spot}. There was the ${thing}! "Good ${animal}!" said ${h.name}.`
        : `${f.name} looked ${spot} near ${elsewhere}. "Here is your ${noun}, ${h.name}!" said ${f.name}.`;
    return [
      pick([`Then ${h.name} played with ${pet} and forgot the ${noun}.`, `On the way home ${h.he} lost it.`]),
      pick([
        `"Where is my ${thing}?" asked ${h.name}. ${upper(h.he)} began to cry.`,
        `"My ${thing} is gone!" said ${h.name}. ${upper(h.he)} was very sad.`,
      ]),
      pick([
        `${f.name} came by and wanted to help.`,
        `${upper(h.his)} friend ${f.name} heard ${h.him}. "I will help you," said ${f.name}.`,
      ]),
      pick([
        `They looked ${c.there}, but the ${noun} was not there.`,
        `${h.name}, ${f.name} and ${pet} looked for it everywhere.`,
      ]),
      finds,
      pick([
        `${h.name} thanked ${found === 'pet' ? pet : f.name} and held the ${thing} tight.`,
        `${h.name} was happy again, and so was ${f.name}.`,
      ]),
    ].join(' ');
  },
  // The thing is a gift.
  (c, pick) => {
    const { hero: h, friend: f, pet, thing, elsewhere, food } = c;
    return [
      pick([
        `It was the birthday of ${f.name}.`,
        `${h.name} knew that ${f.name} had no toys.`,
        `${h.name} wanted to make ${f.name} happy.`,
      ]),
      pick([
        `"I will give the ${thing} to ${f.name}," said ${h.name} to ${pet}.`,
        `"${f.name} will like my ${thing}," ${h.he} said.`,
      ]),
      `${f.name} lived near ${elsewhere}.`,
      pick([
        `${h.name} and ${pet} walked all the way to ${elsewhere}.`,
        `So ${h.he} took ${pet} and went to ${elsewhere}.`,
      ]),
      `"This ${thing} is for you, ${f.name}," said ${h.name}.`,
      pick([
        `"For me? Thank you, ${h.name}!" said ${f.name}.`,
        `${f.name} smiled. "It is the best gift of all, ${h.name}," ${f.he} said.`,
      ]),
      pick([
        `Then ${h.name} and ${f.name} ate ${food}, and ${pet} got some too.`,
        `${f.name} gave ${h.him} ${food}, and they ate it with ${pet}.`,
      ]),
    ].join(' ');
  },
  // The animal runs away.
  (c, pick) => {
    const { hero: h, friend: f, animal, pet, thing, elsewhere, spot } = c;
    return [
      pick([`Suddenly ${pet} ran away.`, `There was a loud noise, and ${pet} ran away.`]),
      pick([
        `"${pet}! ${pet}! Where are you?" called ${h.name}.`,
        `${h.name} called, but the ${animal} did not come back.`,
      ]),
      `${upper(c.there)} ${h.he} met ${f.name}.`,
      `"Have you seen my ${animal}?" asked ${h.name}.`,
      pick([`"Yes," said ${f.name}, "${pet} ran to ${elsewhere}."`, `"I saw a ${animal} ${c.away}," said ${f.name}.`]),
      pick([`${h.name} and ${f.name} went to ${elsewhere} together.`, `So they went to ${elsewhere}.`]),
      `${pet} was ${spot}.`,
      pick([
        `${h.name} hugged the ${animal} and showed ${pet} the ${thing}.`,
        `"Bad ${animal}!" said ${h.name}, but ${h.he} was glad.`,
      ]),
      pick([`"Thank you, ${f.name}," said ${h.name}.`, `${f.name} laughed, and ${h.name} laughed too.`]),
    ].join(' ');
  },
  // Two children trade their things.
  (c, pick) => {
    const { hero: h, friend: f, pet, thing, other, elsewhere } = c;
    return [
      `${upper(c.there)} ${h.he} met ${f.name}, who had a ${other}.`,
      pick([`"I like your ${other}," said ${h.name}.`, `"What a fine ${other}!" said ${h.name}.`]),
      pick([
        `"And I like your ${thing}," said ${f.name}. "Let us trade."`,
        `"Give me your ${thing}, and you may have it," said ${f.name}.`,
      ]),
      `So ${h.name} gave ${f.name} the ${thing}, and ${f.name} gave ${h.name} the ${other}.`,
      pick([
        `They played ${c.away}, and ${pet} ran after them.`,
        `${h.name} took the ${other} to ${elsewhere}, and ${f.name} came with the ${thing}.`,
      ]),
      `But soon ${h.name} missed the ${thing}, and ${f.name} missed the ${other}.`,
      pick([`"Let us trade again," said ${h.name}. ${f.name} was glad.`, `So they traded again, and both were happy.`]),
      `Now ${h.name} had the ${thing}, and ${f.name} had the ${other}.`,
    ].join(' ');
  },
  // The weather turns.
  (c, pick) => {
    const { hero: h, friend: f, animal, pet, thing, elsewhere, food, otherFood } = c;
    return [
      pick([`Soon dark clouds came, and it began to rain.`, `Then a storm came, and the sky went dark.`]),
      `"Come here, ${h.name}!" called ${f.name} from ${elsewhere}. "It is dry here."`,
      pick([`${h.name} took the ${animal} and ran.`, `${h.name} ran to ${f.name}, and ${pet} ran too.`]),
      `${upper(c.away)} they sat close to each other.`,
      `${f.name} had ${food}, and ${h.name} had ${otherFood}.`,
      pick([
        `"You may have some ${food}, ${h.name}," said ${f.name}.`,
        `${f.name} gave ${h.name} some ${food}, and ${h.name} gave ${f.name} some ${otherFood}.`,
      ]),
      pick([`${h.name} showed ${f.name} the ${thing}.`, `${pet} slept on the ${thing}.`]),
      pick([`They told stories until the storm was over.`, `They waited until the sun came out.`]),
    ].join(' ');
  },
  // A visit, with somebody who asks the way.
  (c, pick) => {
    const { hero: h, friend: f, pet, thing, elsewhere, grown, food } = c;
    const [, noun] = thing.split(' ');
    return [
      `${h.name} wanted to visit ${h.his} ${grown}, who lived near ${elsewhere}.`,
      pick([`But ${h.he} did not know the way.`, `The way was long.`]),
      `On the road ${h.he} met ${f.name}.`,
      pick([
        `"Where are you going, ${h.name}?" asked ${f.name}.`,
        `"Where do you carry that ${noun}?" asked ${f.name}.`,
      ]),
      `"To ${elsewhere}, to my ${grown}," said ${h.name}.`,
      pick([`"Then follow me," said ${f.name}.`, `"I know the way to ${elsewhere}," said ${f.name}.`]),
      `${h.name}, ${f.name} and ${pet} walked until they saw ${elsewhere}.`,
      `The ${grown} of ${h.name} made ${food} for them.`,
      pick([`${h.name} put the ${thing} on the table.`, `"What a fine ${thing}!" said the ${grown}.`]),
    ].join(' ');
  },
  // The thing breaks and is mended.
  (c, pick) => {
    const { hero: h, friend: f, animal, pet, thing, elsewhere } = c;
    const [, noun] = thing.split(' ');
    return [
      pick([`${upper(c.there)} ${pet} jumped on the ${noun}, and it broke.`, `${h.name} fell, and the ${noun} broke.`]),
      pick([`"Oh no, my ${thing}!" said ${h.name}.`, `${h.name} looked at the ${thing} and cried.`]),
      `"Do not cry," said ${f.name}. "My ${c.grown} can mend a ${noun}."`,
      `They took the ${noun} to ${elsewhere}, and the ${animal} came too.`,
      `The ${c.grown} of ${f.name} worked for an hour.`,
      pick([
        `Then the ${thing} was as good as new.`,
        `"Here is your ${noun}, ${h.name}," ${['mother', 'grandmother', 'aunt'].includes(c.grown) ? 'she' : 'he'} said.`,
      ]),
      pick([`"Thank you!" said ${h.name}, and ${pet} looked at ${f.name}.`, `${h.name} thanked ${f.name}.`]),
    ].join(' ');
  },
];

/** End of a story. @param {ReturnType<typeof castOf>} c @param {(list: string[]) => string} pick */
function ending(c, pick) {
  const { hero: h, friend: f, animal, pet, place, weather } = c;
  return pick([
    `${weather.later} ${h.name} went home with ${pet}.`,
    `${weather.later} "Good night, ${h.name}," said ${f.name}. "Good night, ${f.name}," said ${h.name}.`,
    `That night ${h.name} dreamed of ${place}, and ${pet} the ${animal} slept at ${h.his} feet.`,
    `From then on ${h.name} and ${f.name} were good friends, and ${pet} was the friend of both.`,
    `In the evening ${h.name} and ${pet} went home. ${weather.later}`,
  ]);
}

/** A story. @param {Random} random */
export function story(random) {
  const c = castOf(random);
  const pick = (list) => list[Math.floor(random() * list.length)];
  const plot = plots[Math.floor(random() * plots.length)];
  return `${opening(c, pick)} ${plot(c, pick)} ${ending(c, pick)}`;
}
