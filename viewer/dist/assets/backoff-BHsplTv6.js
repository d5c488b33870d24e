var e=class{rest=``;feed(e){let n=(this.rest+e).replaceAll(`\r
`,`
`).split(`

`);return this.rest=n.pop()??``,n.map(t).filter(e=>e!==null)}};function t(e){let t=`message`,n=null,r=[];for(let i of e.split(`
`)){let e=i.indexOf(`:`);if(e<=0)continue;let a=i.slice(e+1).replace(/^ /,``),o=i.slice(0,e);o===`event`?t=a:o===`id`?n=a:o===`data`&&r.push(a)}return r.length?{name:t,id:n,data:r.join(`
`)}:null}var n=500,r=15e3,i=6e4,a=3,o=class{now;random;tries=0;failures=[];constructor(e=()=>performance.now(),t=Math.random){this.now=e,this.random=t}fail(e=null){this.failures.push(this.now());let t=Math.min(r,n*2**this.tries++)*(.75+this.random()/2);return Math.max(t,(e??0)*1e3)}succeed(){this.tries=0}get isHopeless(){return this.failures.filter(e=>e>this.now()-i).length>=a}forget(){this.failures.length=0,this.tries=0}};export{e as n,o as t};