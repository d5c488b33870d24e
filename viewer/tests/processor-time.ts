/** How much processor time something takes: unlike the clock, it does not depend on what else the machine does. */

/** Return the milliseconds of processor time that this process has used. */
export function processorTime(): number {
  const { user, system } = process.cpuUsage();
  return (user + system) / 1000;
}
