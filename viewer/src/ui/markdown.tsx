/** Markdown that models and people wrote. HTML in it is text, links are checked, and nothing is loaded by itself. */
import { Component, memo, use, useMemo, useState, type ReactNode } from "react";
import ReactMarkdown, { type Components, type Options } from "react-markdown";
import rehypeSanitize from "rehype-sanitize";
import remarkGfm from "remark-gfm";

import { apiUrl } from "../api/base";
import { ownFilePath, pictureType } from "../api/own-files";
import { texts } from "../texts";
import { HasServerFiles } from "./has-server-files";
import { isTooHeavy } from "./markdown-limits";
import { LongText } from "./values";
import { visibleText } from "./visible-text";

const MAX_IMAGE_CHARS = 2.7 * 1024 * 1024; // of a data URL: an image of 2 MiB
const IMAGE = /^data:image\/(png|jpeg|gif|webp);base64,[A-Za-z0-9+/=\s]+$/;
const LINK = /^(https?:\/\/|mailto:)/i;

const CITATION = /\[ID:\s*(\d{1,6})\]/;

interface MarkdownNode {
  type: string;
  value?: string;
  url?: string;
  position?: { start: { offset?: number }; end: { offset?: number } };
  children?: MarkdownNode[];
  data?: { hName: string; hProperties: Record<string, string> };
}

/** What only some pages show: citations `[ID:37]` as marks, and files of this API where a browser cannot load them by itself. */
export interface MarkdownExtras {
  cite: (number: number) => ReactNode;
  file?: (url: string, label: ReactNode, isPicture: boolean) => ReactNode;
}

/** A plugin of remark: HTML becomes the text that was written, and deceptive characters become visible. */
function htmlAsText() {
  const visit = (node: MarkdownNode): void => {
    if (node.type === "html") node.type = "text";
    if (node.value !== undefined) node.value = visibleText(node.value);
    node.children?.forEach(visit);
  };
  return visit;
}

/** A plugin of remark: an address without a scheme (`www.example.com`, `a@b.c`) that nobody has marked as a link stays text. */
function onlyWrittenLinks() {
  const visit = (node: MarkdownNode): void => {
    if (isGuessedLink(node)) Object.assign(node, { type: "text", value: node.children?.[0]?.value ?? "", children: undefined });
    node.children?.forEach(visit);
  };
  return visit;
}

function isGuessedLink({ type, url, position, children }: MarkdownNode): boolean {
  const text = children?.length === 1 ? children[0]?.value : undefined;
  if (type !== "link" || text === undefined || (url !== `http://${text}` && url !== `mailto:${text}`)) return false;
  return (position?.end.offset ?? 0) - (position?.start.offset ?? 0) <= text.length; // `<a@b.c>` and `[…](…)` are longer
}

/** A plugin of remark: `[ID:37]` in a text becomes a mark; in links and code it stays as it is. */
function citationsAsMarks() {
  const split = (node: MarkdownNode): MarkdownNode[] =>
    (node.value ?? "").split(CITATION).map((part, place) =>
      place % 2 ? { type: "citation", children: [], data: { hName: "sup", hProperties: { dataCite: part } } } : { type: "text", value: part },
    );
  const visit = (node: MarkdownNode): void => {
    if (node.type === "link" || !node.children) return;
    node.children.forEach(visit);
    node.children = node.children.flatMap((child) => (child.type === "text" ? split(child) : [child]));
  };
  return visit;
}

/** Return an address that may be linked or shown; "" for any other. */
export function checkedUrl(url: string): string {
  if (LINK.test(url)) return url;
  return url.length <= MAX_IMAGE_CHARS && IMAGE.test(url) ? url : "";
}

function hostOf(url: string): string {
  try {
    return new URL(url).host;
  } catch {
    return "";
  }
}

/** A picture of this API; the name of one that cannot be loaded. */
function OwnPicture({ path, name }: { path: string; name: string }): ReactNode {
  const [hasFailed, setFailed] = useState(false);
  if (hasFailed) return <span className="text-ink-2">{name || texts.markdown.noPicture}</span>;
  return <img src={apiUrl(path)} alt={name} loading="lazy" className="max-h-80 max-w-full" onError={() => setFailed(true)} />;
}

/** A file of this API in a text; only its name where there is no server. */
function OwnFile({ path, isPicture, children }: { path: string; isPicture: boolean; children: ReactNode }): ReactNode {
  const name = typeof children === "string" ? children : "";
  if (!use(HasServerFiles)) return <span>{children}</span>;
  if (isPicture && pictureType(path) !== null) return <OwnPicture path={path} name={name} />;
  return (
    <a href={apiUrl(path)} download>
      {children || path.split("/").at(-1)}
    </a>
  );
}

const components: Components = {
  a: ({ href, children }) => {
    const own = href ? ownFilePath(href) : null;
    if (own !== null) return <OwnFile path={own} isPicture={false}>{children}</OwnFile>;
    if (!href || !LINK.test(href)) return <span>{children}</span>;
    const host = hostOf(href);
    return (
      <a href={href} target="_blank" rel="noopener noreferrer nofollow">
        {children}
        {host ? <span className="text-ink-2"> ({visibleText(host)})</span> : null}
      </a>
    );
  },
  img: ({ src, alt }) => {
    const address = typeof src === "string" ? src : "";
    const own = ownFilePath(address);
    if (own !== null) return <OwnFile path={own} isPicture>{visibleText(alt ?? "")}</OwnFile>;
    if (IMAGE.test(address)) return <img src={address} alt={visibleText(alt ?? "")} className="max-h-80 max-w-full" />;
    if (!LINK.test(address)) return <span>{visibleText(alt ?? "")}</span>;
    return (
      <a href={address} target="_blank" rel="noopener noreferrer nofollow">
        {visibleText(alt || address)} <span className="text-ink-2">({visibleText(address)})</span>
      </a>
    );
  },
};

const remarkPlugins = [remarkGfm, onlyWrittenLinks, htmlAsText] as NonNullable<Options["remarkPlugins"]>;
const rehypePlugins: Options["rehypePlugins"] = [
  [rehypeSanitize, { protocols: { href: ["http", "https", "mailto"], src: ["http", "https", "data"] }, attributes: { a: ["href"], img: ["src", "alt"], input: ["type", "checked", "disabled"], th: ["align"], td: ["align"], code: ["className"], sup: ["dataCite"] } }],
];

const withCitations = [...remarkPlugins, citationsAsMarks] as NonNullable<Options["remarkPlugins"]>;

function withExtras(extras: MarkdownExtras): Components {
  const { a: Link, img: Picture } = components as { a: (props: { href?: string; children?: ReactNode }) => ReactNode; img: (props: { src?: string; alt?: string }) => ReactNode };
  return {
    ...components,
    a: ({ href, children }) => (extras.file && href && ownFilePath(href) !== null ? extras.file(href, children, false) : <Link {...(href === undefined ? {} : { href })}>{children}</Link>),
    img: ({ src, alt }) => {
      const address = typeof src === "string" ? src : "";
      const name = visibleText(alt ?? "");
      return extras.file && ownFilePath(address) !== null ? extras.file(address, name, true) : <Picture src={address} alt={name} />;
    },
    sup: ({ node, children }) => {
      const number = node?.properties.dataCite;
      return typeof number === "string" ? extras.cite(Number(number)) : <sup>{children}</sup>;
    },
  };
}

export const Markdown = memo(function Markdown({ text, extras }: { text: string; extras?: MarkdownExtras }): ReactNode {
  const own = useMemo(() => (extras ? withExtras(extras) : components), [extras]);
  if (isTooHeavy(text)) return <AsWritten text={text} />;
  return (
    <WrittenOnError text={text}>
      <div className="markdown break-words" dir="auto">
        <ReactMarkdown
          remarkPlugins={extras ? withCitations : remarkPlugins}
          rehypePlugins={rehypePlugins}
          components={own}
          urlTransform={(url) => (ownFilePath(url) === null ? checkedUrl(url) : url)}
        >
          {text}
        </ReactMarkdown>
      </div>
    </WrittenOnError>
  );
});

function AsWritten({ text }: { text: string }): ReactNode {
  return (
    <>
      <LongText isProse text={text} />
      <p className="text-xs text-ink-2">{texts.markdown.asWritten}</p>
    </>
  );
}

/** A text that the parser fails on is shown as it is written. */
class WrittenOnError extends Component<{ text: string; children: ReactNode }, { hasFailed: boolean }> {
  override state = { hasFailed: false };

  static getDerivedStateFromError(): { hasFailed: boolean } {
    return { hasFailed: true };
  }

  override render(): ReactNode {
    return this.state.hasFailed ? <AsWritten text={this.props.text} /> : this.props.children;
  }
}
