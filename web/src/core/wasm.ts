// What files outside this folder still ask for under this name.
export * from './memory.js';
