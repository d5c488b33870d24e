/** Markdown that models and people wrote. HTML in it is text, links are checked, and nothing is loaded by itself. */
import { Component, memo, type ReactNode } from "react";
import ReactMarkdown, { type Components, type Options } from "react-markdown";
import rehypeSanitize from "rehype-sanitize";
import remarkGfm from "remark-gfm";

import { texts } from "../texts";
import { isTooHeavy } from "./markdown-limits";
import { LongText } from "./values";
import { visibleText } from "./visible-text";

const MAX_IMAGE_CHARS = 2.7 * 1024 * 1024; // of a data URL: an image of 2 MiB
const IMAGE = /^data:image\/(png|jpeg|gif|webp);base64,[A-Za-z0-9+/=\s]+$/;
const LINK = /^(https?:\/\/|mailto:)/i;

interface MarkdownNode {
  type: string;
  value?: string;
  children?: MarkdownNode[];
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

const components: Components = {
  a: ({ href, children }) => {
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
    if (IMAGE.test(address)) return <img src={address} alt={visibleText(alt ?? "")} className="max-h-80 max-w-full" />;
    if (!LINK.test(address)) return <span>{visibleText(alt ?? "")}</span>;
    return (
      <a href={address} target="_blank" rel="noopener noreferrer nofollow">
        {visibleText(alt || address)} <span className="text-ink-2">({visibleText(address)})</span>
      </a>
    );
  },
};

const remarkPlugins = [remarkGfm, htmlAsText] as NonNullable<Options["remarkPlugins"]>;
const rehypePlugins: Options["rehypePlugins"] = [
  [rehypeSanitize, { protocols: { href: ["http", "https", "mailto"], src: ["http", "https", "data"] }, attributes: { a: ["href"], img: ["src", "alt"], input: ["type", "checked", "disabled"], th: ["align"], td: ["align"], code: ["className"] } }],
];

export const Markdown = memo(function Markdown({ text }: { text: string }): ReactNode {
  if (isTooHeavy(text)) return <AsWritten text={text} />;
  return (
    <WrittenOnError text={text}>
      <div className="markdown break-words" dir="auto">
        <ReactMarkdown remarkPlugins={remarkPlugins} rehypePlugins={rehypePlugins} components={components} urlTransform={checkedUrl}>
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
