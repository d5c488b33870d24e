var e=/\ufdd0([^\ufdd1]*)(?:\ufdd1|$)/g,t=1e5;function n(t){let n=[...t.matchAll(e)].map(e=>e[1]??``).join(`
`);return{answer:t.replace(e,``),reasoning:n}}export{n,t};