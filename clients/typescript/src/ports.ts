/** A port inside that the host can reach. */
export interface PublishedPort {
  /** Where the host listens. */
  address: string;
  /** The port of the host; the real one where 0 was asked for. */
  port: number;
  /** The port inside. */
  inside: number;
}
