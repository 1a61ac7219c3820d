var e = class extends Error {
  name = `ScalepointError`;
  code;
  tensor;
  byteOffset;
  constructor(e, t, n = {}) {
    super(t, n.cause === void 0 ? void 0 : { cause: n.cause }),
      (this.code = e),
      n.tensor !== void 0 && (this.tensor = n.tensor),
      n.byteOffset !== void 0 && (this.byteOffset = n.byteOffset);
  }
};
function t(t) {
  return new e(`DISPOSED`, `${t} was used after dispose()`);
}
function n(e, t) {
  return Object.assign(e, { option: t });
}
function r(e, t) {
  return n(/* @__PURE__ */ RangeError(`${e}: ${t}`), e);
}
function i(e, t, r) {
  return n(TypeError(`${e}: ${t}`, r === void 0 ? void 0 : { cause: r }), e);
}
function a(e) {
  try {
    return o(e, 0);
  } catch {
    return `a value of type ${typeof e}`;
  }
}
function o(e, t) {
  return typeof e == `string`
    ? JSON.stringify(e.length > 60 ? `${e.slice(0, 57)}...` : e)
    : Array.isArray(e)
      ? e.length > 12 || t > 1
        ? `an array of ${e.length}`
        : `[${e.map((e) => o(e, t + 1)).join(`, `)}]`
      : ArrayBuffer.isView(e)
        ? `${Object.prototype.toString.call(e).slice(8, -1)}`
        : typeof e == `function`
          ? `a function`
          : typeof e == `object` && e
            ? Object.prototype.toString.call(e)
            : String(e);
}
function s(e, t, n = `a number`) {
  if (typeof e != `number`) throw i(t, `expected ${n}, got ${a(e)}`);
  return e;
}
var c = (() => {
  var e = typeof document < `u` && document.currentScript ? document.currentScript.src : void 0;
  return (t) => {
    t ||= {};
    var n = t === void 0 ? {} : t,
      r,
      i;
    n.ready = new Promise((e, t) => {
      (r = e), (i = t);
    });
    var a = Object.assign({}, n),
      o = [],
      s = typeof window == `object`,
      c = typeof importScripts == `function`;
    typeof process == `object` && typeof process.versions == `object` && process.versions.node;
    var l = ``;
    function u(e) {
      return n.locateFile ? n.locateFile(e, l) : l + e;
    }
    var d;
    (s || c) &&
      (c
        ? (l = self.location.href)
        : typeof document < `u` && document.currentScript && (l = document.currentScript.src),
      e && (l = e),
      (l = l.indexOf(`blob:`) === 0 ? `` : l.substr(0, l.replace(/[?#].*/, ``).lastIndexOf(`/`) + 1)),
      c &&
        (d = (e) => {
          var t = new XMLHttpRequest();
          return (t.open(`GET`, e, !1), (t.responseType = `arraybuffer`), t.send(null), new Uint8Array(t.response));
        })),
      n.print || console.log.bind(console);
    var f = n.printErr || console.warn.bind(console);
    Object.assign(n, a), (a = null), n.arguments && (o = n.arguments), n.thisProgram && n.thisProgram, n.quit && n.quit;
    var p;
    n.wasmBinary && (p = n.wasmBinary),
      n.noExitRuntime,
      typeof WebAssembly != `object` && De(`no native wasm support detected`);
    var m,
      h = !1,
      ee = typeof TextDecoder < `u` ? new TextDecoder(`utf8`) : void 0;
    function te(e, t, n) {
      t >>>= 0;
      for (var r = t + n, i = t; e[i >>> 0] && !(i >= r); ) ++i;
      if (i - t > 16 && e.subarray && ee) return ee.decode(e.subarray(t >>> 0, i >>> 0));
      for (var a = ``; t < i; ) {
        var o = e[t++ >>> 0];
        if (!(o & 128)) a += String.fromCharCode(o);
        else {
          var s = e[t++ >>> 0] & 63;
          if ((o & 224) == 192) a += String.fromCharCode(((o & 31) << 6) | s);
          else {
            var c = e[t++ >>> 0] & 63;
            if (
              ((o =
                (o & 240) == 224
                  ? ((o & 15) << 12) | (s << 6) | c
                  : ((o & 7) << 18) | (s << 12) | (c << 6) | (e[t++ >>> 0] & 63)),
              o < 65536)
            )
              a += String.fromCharCode(o);
            else {
              var l = o - 65536;
              a += String.fromCharCode(55296 | (l >> 10), 56320 | (l & 1023));
            }
          }
        }
      }
      return a;
    }
    function g(e, t) {
      return ((e >>>= 0), e ? te(y, e, t) : ``);
    }
    function _(e, t, n, r) {
      if (((n >>>= 0), !(r > 0))) return 0;
      for (var i = n, a = n + r - 1, o = 0; o < e.length; ++o) {
        var s = e.charCodeAt(o);
        if (s >= 55296 && s <= 57343) {
          var c = e.charCodeAt(++o);
          s = (65536 + ((s & 1023) << 10)) | (c & 1023);
        }
        if (s <= 127) {
          if (n >= a) break;
          t[n++ >>> 0] = s;
        } else if (s <= 2047) {
          if (n + 1 >= a) break;
          (t[n++ >>> 0] = 192 | (s >> 6)), (t[n++ >>> 0] = 128 | (s & 63));
        } else if (s <= 65535) {
          if (n + 2 >= a) break;
          (t[n++ >>> 0] = 224 | (s >> 12)), (t[n++ >>> 0] = 128 | ((s >> 6) & 63)), (t[n++ >>> 0] = 128 | (s & 63));
        } else {
          if (n + 3 >= a) break;
          (t[n++ >>> 0] = 240 | (s >> 18)),
            (t[n++ >>> 0] = 128 | ((s >> 12) & 63)),
            (t[n++ >>> 0] = 128 | ((s >> 6) & 63)),
            (t[n++ >>> 0] = 128 | (s & 63));
        }
      }
      return ((t[n >>> 0] = 0), n - i);
    }
    function ne(e, t, n) {
      return _(e, y, t, n);
    }
    function re(e) {
      for (var t = 0, n = 0; n < e.length; ++n) {
        var r = e.charCodeAt(n);
        r >= 55296 && r <= 57343 && (r = (65536 + ((r & 1023) << 10)) | (e.charCodeAt(++n) & 1023)),
          r <= 127 ? ++t : (t += r <= 2047 ? 2 : r <= 65535 ? 3 : 4);
      }
      return t;
    }
    var ie = typeof TextDecoder < `u` ? new TextDecoder(`utf-16le`) : void 0;
    function ae(e, t) {
      for (var n = e, r = n >> 1, i = r + t / 2; !(r >= i) && fe[r >>> 0]; ) ++r;
      if (((n = r << 1), n - e > 32 && ie)) return ie.decode(y.subarray(e >>> 0, n >>> 0));
      for (var a = ``, o = 0; !(o >= t / 2); ++o) {
        var s = b[(e + o * 2) >>> 1];
        if (s == 0) break;
        a += String.fromCharCode(s);
      }
      return a;
    }
    function oe(e, t, n) {
      if ((n === void 0 && (n = 2147483647), n < 2)) return 0;
      n -= 2;
      for (var r = t, i = n < e.length * 2 ? n / 2 : e.length, a = 0; a < i; ++a) {
        var o = e.charCodeAt(a);
        (b[t >>> 1] = o), (t += 2);
      }
      return ((b[t >>> 1] = 0), t - r);
    }
    function se(e) {
      return e.length * 2;
    }
    function ce(e, t) {
      for (var n = 0, r = ``; !(n >= t / 4); ) {
        var i = x[(e + n * 4) >>> 2];
        if (i == 0) break;
        if ((++n, i >= 65536)) {
          var a = i - 65536;
          r += String.fromCharCode(55296 | (a >> 10), 56320 | (a & 1023));
        } else r += String.fromCharCode(i);
      }
      return r;
    }
    function le(e, t, n) {
      if (((t >>>= 0), n === void 0 && (n = 2147483647), n < 4)) return 0;
      for (var r = t, i = r + n - 4, a = 0; a < e.length; ++a) {
        var o = e.charCodeAt(a);
        if (o >= 55296 && o <= 57343) {
          var s = e.charCodeAt(++a);
          o = (65536 + ((o & 1023) << 10)) | (s & 1023);
        }
        if (((x[t >>> 2] = o), (t += 4), t + 4 > i)) break;
      }
      return ((x[t >>> 2] = 0), t - r);
    }
    function ue(e) {
      for (var t = 0, n = 0; n < e.length; ++n) {
        var r = e.charCodeAt(n);
        r >= 55296 && r <= 57343 && ++n, (t += 4);
      }
      return t;
    }
    var v, de, y, b, fe, x, S, C, pe;
    function me(e) {
      (v = e),
        (n.HEAP8 = de = new Int8Array(e)),
        (n.HEAP16 = b = new Int16Array(e)),
        (n.HEAP32 = x = new Int32Array(e)),
        (n.HEAPU8 = y = new Uint8Array(e)),
        (n.HEAPU16 = fe = new Uint16Array(e)),
        (n.HEAPU32 = S = new Uint32Array(e)),
        (n.HEAPF32 = C = new Float32Array(e)),
        (n.HEAPF64 = pe = new Float64Array(e));
    }
    n.INITIAL_MEMORY;
    var he,
      ge = [],
      _e = [],
      ve = [];
    function ye() {
      if (n.preRun)
        for (typeof n.preRun == `function` && (n.preRun = [n.preRun]); n.preRun.length; ) Se(n.preRun.shift());
      Ne(ge);
    }
    function be() {
      Ne(_e);
    }
    function xe() {
      if (n.postRun)
        for (typeof n.postRun == `function` && (n.postRun = [n.postRun]); n.postRun.length; ) we(n.postRun.shift());
      Ne(ve);
    }
    function Se(e) {
      ge.unshift(e);
    }
    function Ce(e) {
      _e.unshift(e);
    }
    function we(e) {
      ve.unshift(e);
    }
    var w = 0,
      T = null,
      E = null;
    function Te(e) {
      w++, n.monitorRunDependencies && n.monitorRunDependencies(w);
    }
    function Ee(e) {
      if (
        (w--,
        n.monitorRunDependencies && n.monitorRunDependencies(w),
        w == 0 && (T !== null && (clearInterval(T), (T = null)), E))
      ) {
        var t = E;
        (E = null), t();
      }
    }
    (n.preloadedImages = {}), (n.preloadedAudios = {});
    function De(e) {
      n.onAbort && n.onAbort(e),
        (e = `Aborted(` + e + `)`),
        f(e),
        (h = !0),
        (e += `. Build with -s ASSERTIONS=1 for more info.`);
      var t = new WebAssembly.RuntimeError(e);
      throw (i(t), t);
    }
    var Oe = `data:application/octet-stream;base64,`;
    function ke(e) {
      return e.startsWith(Oe);
    }
    var D = `core.wasm`;
    ke(D) || (D = u(D));
    function Ae(e) {
      try {
        if (e == D && p) return new Uint8Array(p);
        if (d) return d(e);
        throw `both async and sync fetching of the wasm failed`;
      } catch (e) {
        De(e);
      }
    }
    function je() {
      return !p && (s || c) && typeof fetch == `function`
        ? fetch(D, { credentials: `same-origin` })
            .then((e) => {
              if (!e.ok) throw `failed to load wasm binary file at '` + D + `'`;
              return e.arrayBuffer();
            })
            .catch(() => Ae(D))
        : Promise.resolve().then(() => Ae(D));
    }
    function Me() {
      var e = { a: ht };
      function t(e, t) {
        (n.asm = e.exports), (m = n.asm.m), me(m.buffer), (he = n.asm.T), Ce(n.asm.n), Ee(`wasm-instantiate`);
      }
      Te(`wasm-instantiate`);
      function r(e) {
        t(e.instance);
      }
      function a(t) {
        return je()
          .then((t) => WebAssembly.instantiate(t, e))
          .then((e) => e)
          .then(t, (e) => {
            f(`failed to asynchronously prepare wasm: ` + e), De(e);
          });
      }
      function o() {
        return !p && typeof WebAssembly.instantiateStreaming == `function` && !ke(D) && typeof fetch == `function`
          ? fetch(D, { credentials: `same-origin` }).then((t) =>
              WebAssembly.instantiateStreaming(t, e).then(
                r,
                (e) => (f(`wasm streaming compile failed: ` + e), f(`falling back to ArrayBuffer instantiation`), a(r)),
              ),
            )
          : a(r);
      }
      if (n.instantiateWasm)
        try {
          return n.instantiateWasm(e, t);
        } catch (e) {
          return (f(`Module.instantiateWasm callback failed with error: ` + e), !1);
        }
      return (o().catch(i), {});
    }
    function Ne(e) {
      for (; e.length > 0; ) {
        var t = e.shift();
        if (typeof t == `function`) t(n);
        else {
          var r = t.func;
          typeof r == `number` ? (t.arg === void 0 ? O(r)() : O(r)(t.arg)) : r(t.arg === void 0 ? null : t.arg);
        }
      }
    }
    function O(e) {
      return he.get(e);
    }
    function k(e, t, n, r, i) {}
    function A(e) {
      switch (e) {
        case 1:
          return 0;
        case 2:
          return 1;
        case 4:
          return 2;
        case 8:
          return 3;
        default:
          throw TypeError(`Unknown type size: ` + e);
      }
    }
    function Pe() {
      for (var e = Array(256), t = 0; t < 256; ++t) e[t] = String.fromCharCode(t);
      j = e;
    }
    var j = void 0;
    function M(e) {
      for (var t = ``, n = e; y[n >>> 0]; ) t += j[y[n++ >>> 0]];
      return t;
    }
    var N = {},
      P = {},
      F = {},
      Fe = 48,
      Ie = 57;
    function Le(e) {
      if (e === void 0) return `_unknown`;
      e = e.replace(/[^a-zA-Z0-9_]/g, `$`);
      var t = e.charCodeAt(0);
      return t >= Fe && t <= Ie ? `_` + e : e;
    }
    function I(e, t) {
      return (
        (e = Le(e)),
        function () {
          return t.apply(this, arguments);
        }
      );
    }
    function L(e, t) {
      var n = I(t, function (e) {
        (this.name = t), (this.message = e);
        var n = Error(e).stack;
        n !== void 0 &&
          (this.stack =
            this.toString() +
            `
` +
            n.replace(/^Error(:[^\n]*)?\n/, ``));
      });
      return (
        (n.prototype = Object.create(e.prototype)),
        (n.prototype.constructor = n),
        (n.prototype.toString = function () {
          return this.message === void 0 ? this.name : this.name + `: ` + this.message;
        }),
        n
      );
    }
    var R = void 0;
    function z(e) {
      throw new R(e);
    }
    var Re = void 0;
    function ze(e) {
      throw new Re(e);
    }
    function Be(e, t, n) {
      e.forEach((e) => {
        F[e] = t;
      });
      function r(t) {
        var r = n(t);
        r.length !== e.length && ze(`Mismatched type converter count`);
        for (var i = 0; i < e.length; ++i) B(e[i], r[i]);
      }
      var i = Array(t.length),
        a = [],
        o = 0;
      t.forEach((e, t) => {
        Object.hasOwn(P, e)
          ? (i[t] = P[e])
          : (a.push(e),
            Object.hasOwn(N, e) || (N[e] = []),
            N[e].push(() => {
              (i[t] = P[e]), ++o, o === a.length && r(i);
            }));
      }),
        a.length === 0 && r(i);
    }
    function B(e, t, n = {}) {
      if (!(`argPackAdvance` in t)) throw TypeError(`registerType registeredInstance requires argPackAdvance`);
      var r = t.name;
      if ((e || z(`type "` + r + `" must have a positive integer typeid pointer`), Object.hasOwn(P, e))) {
        if (n.ignoreDuplicateRegistrations) return;
        z(`Cannot register type '` + r + `' twice`);
      }
      if (((P[e] = t), delete F[e], Object.hasOwn(N, e))) {
        var i = N[e];
        delete N[e],
          i.forEach((e) => {
            e();
          });
      }
    }
    function V(e, t, n, r, i) {
      var a = A(n);
      (t = M(t)),
        B(e, {
          name: t,
          fromWireType: (e) => !!e,
          toWireType: (e, t) => (t ? r : i),
          argPackAdvance: 8,
          readValueFromPointer: function (e) {
            var r;
            if (n === 1) r = de;
            else if (n === 2) r = b;
            else if (n === 4) r = x;
            else throw TypeError(`Unknown boolean type size: ` + t);
            return this.fromWireType(r[e >>> a]);
          },
          destructorFunction: null,
        });
    }
    var Ve = [],
      H = [{}, { value: void 0 }, { value: null }, { value: !0 }, { value: !1 }];
    function U(e) {
      e > 4 && --H[e].refcount === 0 && ((H[e] = void 0), Ve.push(e));
    }
    function W() {
      for (var e = 0, t = 5; t < H.length; ++t) H[t] !== void 0 && ++e;
      return e;
    }
    function He() {
      for (var e = 5; e < H.length; ++e) if (H[e] !== void 0) return H[e];
      return null;
    }
    function Ue() {
      (n.count_emval_handles = W), (n.get_first_emval = He);
    }
    var We = {
      toValue: (e) => (e || z(`Cannot use deleted val. handle = ` + e), H[e].value),
      toHandle: (e) => {
        switch (e) {
          case void 0:
            return 1;
          case null:
            return 2;
          case !0:
            return 3;
          case !1:
            return 4;
          default:
            var t = Ve.length ? Ve.pop() : H.length;
            return ((H[t] = { refcount: 1, value: e }), t);
        }
      },
    };
    function Ge(e) {
      return this.fromWireType(S[e >>> 2]);
    }
    function Ke(e, t) {
      (t = M(t)),
        B(e, {
          name: t,
          fromWireType: (e) => {
            var t = We.toValue(e);
            return (U(e), t);
          },
          toWireType: (e, t) => We.toHandle(t),
          argPackAdvance: 8,
          readValueFromPointer: Ge,
          destructorFunction: null,
        });
    }
    function qe(e, t) {
      switch (t) {
        case 2:
          return function (e) {
            return this.fromWireType(C[e >>> 2]);
          };
        case 3:
          return function (e) {
            return this.fromWireType(pe[e >>> 3]);
          };
        default:
          throw TypeError(`Unknown float type: ` + e);
      }
    }
    function Je(e, t, n) {
      var r = A(n);
      (t = M(t)),
        B(e, {
          name: t,
          fromWireType: (e) => e,
          toWireType: (e, t) => t,
          argPackAdvance: 8,
          readValueFromPointer: qe(t, r),
          destructorFunction: null,
        });
    }
    function G(e) {
      for (; e.length; ) {
        var t = e.pop();
        e.pop()(t);
      }
    }
    function K(e, t, n, r, i) {
      var a = t.length;
      a < 2 && z(`argTypes array size mismatch! Must at least get return value and 'this' types!`);
      for (var o = t[1] !== null && n !== null, s = !1, c = 1; c < t.length; ++c)
        if (t[c] !== null && t[c].destructorFunction === void 0) {
          s = !0;
          break;
        }
      var l = t[0].name !== `void`,
        u = a - 2,
        d = Array(u),
        f = [],
        p = [];
      return function () {
        arguments.length !== u &&
          z(`function ` + e + ` called with ` + arguments.length + ` arguments, expected ` + u + ` args!`),
          (p.length = 0);
        var n;
        (f.length = o ? 2 : 1), (f[0] = i), o && ((n = t[1].toWireType(p, this)), (f[1] = n));
        for (var a = 0; a < u; ++a) (d[a] = t[a + 2].toWireType(p, arguments[a])), f.push(d[a]);
        var c = r.apply(null, f);
        function m(e) {
          if (s) G(p);
          else
            for (var r = o ? 1 : 2; r < t.length; r++) {
              var i = r === 1 ? n : d[r - 2];
              t[r].destructorFunction !== null && t[r].destructorFunction(i);
            }
          if (l) return t[0].fromWireType(e);
        }
        return m(c);
      };
    }
    function Ye(e, t, n) {
      if (e[t].overloadTable === void 0) {
        var r = e[t];
        (e[t] = function () {
          return (
            Object.hasOwn(e[t].overloadTable, arguments.length) ||
              z(
                `Function '` +
                  n +
                  `' called with an invalid number of arguments (` +
                  arguments.length +
                  `) - expects one of (` +
                  e[t].overloadTable +
                  `)!`,
              ),
            e[t].overloadTable[arguments.length].apply(this, arguments)
          );
        }),
          (e[t].overloadTable = []),
          (e[t].overloadTable[r.argCount] = r);
      }
    }
    function Xe(e, t, r) {
      Object.hasOwn(n, e)
        ? ((r === void 0 || (n[e].overloadTable !== void 0 && n[e].overloadTable[r] !== void 0)) &&
            z(`Cannot register public name '` + e + `' twice`),
          Ye(n, e, e),
          Object.hasOwn(n, r) &&
            z(`Cannot register multiple overloads of a function with the same number of arguments (` + r + `)!`),
          (n[e].overloadTable[r] = t))
        : ((n[e] = t), r !== void 0 && (n[e].numArguments = r));
    }
    function Ze(e, t) {
      for (var n = [], r = 0; r < e; r++) n.push(x[((t >> 2) + r) >>> 0]);
      return n;
    }
    function Qe(e, t, r) {
      Object.hasOwn(n, e) || ze(`Replacing nonexistant public symbol`),
        n[e].overloadTable !== void 0 && r !== void 0 ? (n[e].overloadTable[r] = t) : ((n[e] = t), (n[e].argCount = r));
    }
    function $e(e, t, r) {
      var i = n[`dynCall_` + e];
      return r && r.length ? i.apply(null, [t].concat(r)) : i.call(null, t);
    }
    function et(e, t, n) {
      return e.includes(`j`) ? $e(e, t, n) : O(t).apply(null, n);
    }
    function tt(e, t) {
      var n = [];
      return function () {
        return ((n.length = 0), Object.assign(n, arguments), et(e, t, n));
      };
    }
    function nt(e, t) {
      e = M(e);
      function n() {
        return e.includes(`j`) ? tt(e, t) : O(t);
      }
      var r = n();
      return (typeof r != `function` && z(`unknown function pointer with signature ` + e + `: ` + t), r);
    }
    var rt = void 0;
    function it(e) {
      var t = Gt(e),
        n = M(t);
      return (Z(t), n);
    }
    function q(e, t) {
      var n = [],
        r = {};
      function i(e) {
        r[e] || P[e] || (F[e] ? F[e].forEach(i) : (n.push(e), (r[e] = !0)));
      }
      throw (t.forEach(i), new rt(e + `: ` + n.map(it).join([`, `])));
    }
    function at(e, t, n, r, i, a) {
      var o = Ze(t, n);
      (e = M(e)),
        (i = nt(r, i)),
        Xe(
          e,
          () => {
            q(`Cannot call ` + e + ` due to unbound types`, o);
          },
          t - 1,
        ),
        Be([], o, (n) => {
          var r = [n[0], null].concat(n.slice(1));
          return (Qe(e, K(e, r, null, i, a), t - 1), []);
        });
    }
    function ot(e, t, n) {
      switch (t) {
        case 0:
          return n ? (e) => de[e >>> 0] : (e) => y[e >>> 0];
        case 1:
          return n ? (e) => b[e >>> 1] : (e) => fe[e >>> 1];
        case 2:
          return n ? (e) => x[e >>> 2] : (e) => S[e >>> 2];
        default:
          throw TypeError(`Unknown integer type: ` + e);
      }
    }
    function J(e, t, n, r, i) {
      (t = M(t)), i === -1 && (i = 4294967295);
      var a = A(n),
        o = (e) => e;
      if (r === 0) {
        var s = 32 - 8 * n;
        o = (e) => (e << s) >>> s;
      }
      var c = t.includes(`unsigned`)
        ? function (e, t) {
            return (this.name, t >>> 0);
          }
        : function (e, t) {
            return (this.name, t);
          };
      B(e, {
        name: t,
        fromWireType: o,
        toWireType: c,
        argPackAdvance: 8,
        readValueFromPointer: ot(t, a, r !== 0),
        destructorFunction: null,
      });
    }
    function st(e, t, n) {
      var r = [Int8Array, Uint8Array, Int16Array, Uint16Array, Int32Array, Uint32Array, Float32Array, Float64Array][t];
      function i(e) {
        e >>= 2;
        var t = S,
          n = t[e >>> 0],
          i = t[(e + 1) >>> 0];
        return new r(v, i, n);
      }
      (n = M(n)),
        B(
          e,
          { name: n, fromWireType: i, argPackAdvance: 8, readValueFromPointer: i },
          { ignoreDuplicateRegistrations: !0 },
        );
    }
    function ct(e, t) {
      t = M(t);
      var n = t === `std::string`;
      B(e, {
        name: t,
        fromWireType: (e) => {
          var t = S[e >>> 2],
            r;
          if (n)
            for (var i = e + 4, a = 0; a <= t; ++a) {
              var o = e + 4 + a;
              if (a == t || y[o >>> 0] == 0) {
                var s = o - i,
                  c = g(i, s);
                r === void 0 ? (r = c) : ((r += `\0`), (r += c)), (i = o + 1);
              }
            }
          else {
            for (var l = Array(t), a = 0; a < t; ++a) l[a] = String.fromCharCode(y[(e + 4 + a) >>> 0]);
            r = l.join(``);
          }
          return (Z(e), r);
        },
        toWireType: (e, t) => {
          t instanceof ArrayBuffer && (t = new Uint8Array(t));
          var r,
            i = typeof t == `string`;
          i ||
            t instanceof Uint8Array ||
            t instanceof Uint8ClampedArray ||
            t instanceof Int8Array ||
            z(`Cannot pass non-string to std::string`),
            (r = n && i ? () => re(t) : () => t.length);
          var a = r(),
            o = Wt(4 + a + 1);
          if (((o >>>= 0), (S[o >>> 2] = a), n && i)) ne(t, o + 4, a + 1);
          else if (i)
            for (var s = 0; s < a; ++s) {
              var c = t.charCodeAt(s);
              c > 255 && (Z(o), z(`String has UTF-16 code units that do not fit in 8 bits`)),
                (y[(o + 4 + s) >>> 0] = c);
            }
          else for (var s = 0; s < a; ++s) y[(o + 4 + s) >>> 0] = t[s];
          return (e !== null && e.push(Z, o), o);
        },
        argPackAdvance: 8,
        readValueFromPointer: Ge,
        destructorFunction: (e) => {
          Z(e);
        },
      });
    }
    function lt(e, t, n) {
      n = M(n);
      var r, i, a, o, s;
      t === 2
        ? ((r = ae), (i = oe), (o = se), (a = () => fe), (s = 1))
        : t === 4 && ((r = ce), (i = le), (o = ue), (a = () => S), (s = 2)),
        B(e, {
          name: n,
          fromWireType: (e) => {
            for (var n = S[e >>> 2], i = a(), o, c = e + 4, l = 0; l <= n; ++l) {
              var u = e + 4 + l * t;
              if (l == n || i[u >>> s] == 0) {
                var d = u - c,
                  f = r(c, d);
                o === void 0 ? (o = f) : ((o += `\0`), (o += f)), (c = u + t);
              }
            }
            return (Z(e), o);
          },
          toWireType: (e, r) => {
            typeof r != `string` && z(`Cannot pass non-string to C++ string type ` + n);
            var a = o(r),
              c = Wt(4 + a + t);
            return ((c >>>= 0), (S[c >>> 2] = a >> s), i(r, c + 4, a + t), e !== null && e.push(Z, c), c);
          },
          argPackAdvance: 8,
          readValueFromPointer: Ge,
          destructorFunction: (e) => {
            Z(e);
          },
        });
    }
    function ut(e, t) {
      (t = M(t)), B(e, { isVoid: !0, name: t, argPackAdvance: 0, fromWireType: () => {}, toWireType: (e, t) => {} });
    }
    function dt(e, t, n) {
      y.copyWithin(e >>> 0, t >>> 0, (t + n) >>> 0);
    }
    function ft() {
      return 4294901760;
    }
    function pt(e) {
      try {
        return (m.grow((e - v.byteLength + 65535) >>> 16), me(m.buffer), 1);
      } catch {}
    }
    function mt(e) {
      var t = y.length;
      e >>>= 0;
      var n = ft();
      if (e > n) return !1;
      const r = (e, t) => e + ((t - (e % t)) % t);
      for (var i = 1; i <= 4; i *= 2) {
        var a = t * (1 + 0.2 / i);
        if (((a = Math.min(a, e + 100663296)), pt(Math.min(n, r(Math.max(e, a), 65536))))) return !0;
      }
      return !1;
    }
    Pe(),
      (R = n.BindingError = L(Error, `BindingError`)),
      (Re = n.InternalError = L(Error, `InternalError`)),
      Ue(),
      (rt = n.UnboundTypeError = L(Error, `UnboundTypeError`));
    var ht = { g: k, l: V, k: Ke, f: Je, a: at, c: J, b: st, e: ct, d: lt, j: ut, i: dt, h: mt };
    Me();
    var gt = (n.___wasm_call_ctors = function () {
        return (gt = n.___wasm_call_ctors = n.asm.n).apply(null, arguments);
      }),
      _t = (n._clearRange = function () {
        return (_t = n._clearRange = n.asm.o).apply(null, arguments);
      }),
      vt = (n._observe = function () {
        return (vt = n._observe = n.asm.p).apply(null, arguments);
      }),
      yt = (n._chooseQparams = function () {
        return (yt = n._chooseQparams = n.asm.q).apply(null, arguments);
      }),
      bt = (n._searchWeighted = function () {
        return (bt = n._searchWeighted = n.asm.r).apply(null, arguments);
      }),
      xt = (n._quantizeLinear = function () {
        return (xt = n._quantizeLinear = n.asm.s).apply(null, arguments);
      }),
      St = (n._quantizeLinearMeasured = function () {
        return (St = n._quantizeLinearMeasured = n.asm.t).apply(null, arguments);
      }),
      Ct = (n._quantizeRuns = function () {
        return (Ct = n._quantizeRuns = n.asm.u).apply(null, arguments);
      }),
      wt = (n._dequantizeLinear = function () {
        return (wt = n._dequantizeLinear = n.asm.v).apply(null, arguments);
      }),
      Tt = (n._pack = function () {
        return (Tt = n._pack = n.asm.w).apply(null, arguments);
      }),
      Et = (n._unpack = function () {
        return (Et = n._unpack = n.asm.x).apply(null, arguments);
      }),
      Dt = (n._accumulateError = function () {
        return (Dt = n._accumulateError = n.asm.y).apply(null, arguments);
      }),
      Ot = (n._accumulateCodeError = function () {
        return (Ot = n._accumulateCodeError = n.asm.z).apply(null, arguments);
      }),
      kt = (n._accumulateErrorEach = function () {
        return (kt = n._accumulateErrorEach = n.asm.A).apply(null, arguments);
      }),
      At = (n._histogram = function () {
        return (At = n._histogram = n.asm.B).apply(null, arguments);
      }),
      jt = (n._quantizeBlocks = function () {
        return (jt = n._quantizeBlocks = n.asm.C).apply(null, arguments);
      }),
      Mt = (n._dequantizeBlocks = function () {
        return (Mt = n._dequantizeBlocks = n.asm.D).apply(null, arguments);
      }),
      Nt = (n._widenFloat16 = function () {
        return (Nt = n._widenFloat16 = n.asm.E).apply(null, arguments);
      }),
      Pt = (n._widenBfloat16 = function () {
        return (Pt = n._widenBfloat16 = n.asm.F).apply(null, arguments);
      }),
      Y = (n._narrowFloat16 = function () {
        return (Y = n._narrowFloat16 = n.asm.G).apply(null, arguments);
      }),
      X = (n._narrowBfloat16 = function () {
        return (X = n._narrowBfloat16 = n.asm.H).apply(null, arguments);
      }),
      Ft = (n._narrowMinifloat = function () {
        return (Ft = n._narrowMinifloat = n.asm.I).apply(null, arguments);
      }),
      It = (n._widenMinifloat = function () {
        return (It = n._widenMinifloat = n.asm.J).apply(null, arguments);
      }),
      Lt = (n._observeAbsmax = function () {
        return (Lt = n._observeAbsmax = n.asm.K).apply(null, arguments);
      }),
      Rt = (n._quantizeCodebook = function () {
        return (Rt = n._quantizeCodebook = n.asm.L).apply(null, arguments);
      }),
      zt = (n._dequantizeCodebook = function () {
        return (zt = n._dequantizeCodebook = n.asm.M).apply(null, arguments);
      }),
      Bt = (n._accumulateCodebookError = function () {
        return (Bt = n._accumulateCodebookError = n.asm.N).apply(null, arguments);
      }),
      Vt = (n._packCodebook = function () {
        return (Vt = n._packCodebook = n.asm.O).apply(null, arguments);
      }),
      Ht = (n._unpackCodebook = function () {
        return (Ht = n._unpackCodebook = n.asm.P).apply(null, arguments);
      }),
      Ut = (n._layerForward = function () {
        return (Ut = n._layerForward = n.asm.Q).apply(null, arguments);
      }),
      Wt = (n._malloc = function () {
        return (Wt = n._malloc = n.asm.R).apply(null, arguments);
      }),
      Z = (n._free = function () {
        return (Z = n._free = n.asm.S).apply(null, arguments);
      }),
      Gt = (n.___getTypeName = function () {
        return (Gt = n.___getTypeName = n.asm.U).apply(null, arguments);
      }),
      Kt = (n.___embind_register_native_and_builtin_types = function () {
        return (Kt = n.___embind_register_native_and_builtin_types = n.asm.V).apply(null, arguments);
      }),
      Q;
    E = function e() {
      Q || $(), Q || (E = e);
    };
    function $(e) {
      if (((e ||= o), w > 0 || (ye(), w > 0))) return;
      function t() {
        Q ||
          ((Q = !0), (n.calledRun = !0), h || (be(), r(n), n.onRuntimeInitialized && n.onRuntimeInitialized(), xe()));
      }
      n.setStatus
        ? (n.setStatus(`Running...`),
          setTimeout(() => {
            setTimeout(() => {
              n.setStatus(``);
            }, 1),
              t();
          }, 1))
        : t();
    }
    if (((n.run = $), n.preInit))
      for (typeof n.preInit == `function` && (n.preInit = [n.preInit]); n.preInit.length > 0; ) n.preInit.pop()();
    return ($(), t.ready);
  };
})();
const l = {
    ok: 0,
    badDType: 1,
    badLayout: 2,
    sizeMismatch: 3,
    badRange: 4,
    badScale: 5,
    badZeroPoint: 6,
    nonFinite: 7,
    overflow: 8,
  },
  u = { data: 0, scale: 1, zeroPoint: 2 },
  d = { none: 0, nonFinite: 1, beyondFloat32: 2, overflow: 3 },
  f = { F32: 0, F16: 1, F64: 28, BF16: 30 },
  p = { mse: 0, percentile: 1, entropy: 2 },
  m = { tile: 0, rows: 1, columns: 2, rowBlocks: 3, columnBlocks: 4 },
  h = {
    Q4_0: 2,
    Q4_1: 3,
    Q5_0: 6,
    Q5_1: 7,
    Q8_0: 8,
    Q2_K: 10,
    Q3_K: 11,
    Q4_K: 12,
    Q5_K: 13,
    Q6_K: 14,
    IQ4_NL: 20,
    MXFP4: 39,
  },
  ee = { nf4: 0, fp4: 1 },
  te = [
    [2, 32, 18],
    [3, 32, 20],
    [6, 32, 22],
    [7, 32, 24],
    [8, 32, 34],
    [10, 256, 84],
    [11, 256, 110],
    [12, 256, 144],
    [13, 256, 176],
    [14, 256, 210],
    [20, 32, 18],
    [39, 32, 17],
  ],
  g = {
    bytes: 64,
    read(e, t) {
      const { HEAPF64: n } = e;
      return {
        squaredError: n[t >>> 3],
        absoluteError: n[(t >>> 3) + 1],
        maxAbsoluteError: n[(t >>> 3) + 2],
        squaredX: n[(t >>> 3) + 3],
        squaredY: n[(t >>> 3) + 4],
        product: n[(t >>> 3) + 5],
        nonFinite: n[(t >>> 3) + 6],
        saturated: n[(t >>> 3) + 7],
      };
    },
  },
  _ = {
    bytes: 8,
    write(e, t, n) {
      const { HEAPU32: r } = e;
      (r[t >>> 2] = n.data), (r[(t >>> 2) + 1] = n.size);
    },
    read(e, t) {
      const { HEAPU32: n } = e;
      return { data: n[t >>> 2], size: n[(t >>> 2) + 1] };
    },
  },
  ne = {
    bytes: 32,
    write(e, t, n) {
      const { HEAPU32: r, HEAPU8: i } = e;
      (r[t >>> 2] = n.rows),
        (r[(t >>> 2) + 1] = n.columns),
        (r[(t >>> 2) + 2] = n.type),
        (r[(t >>> 2) + 3] = n.wanted),
        (i[t + 16] = +!!n.measure),
        _.write(e, t + 20, n.source),
        (r[(t >>> 2) + 7] = n.ranges);
    },
  },
  re = {
    bytes: 24,
    read(e, t) {
      const { HEAPF64: n, HEAPU32: r } = e;
      return { kind: r[t >>> 2] | 0, index: r[(t >>> 2) + 2] + r[(t >>> 2) + 3] * 2 ** 32, value: n[(t >>> 3) + 2] };
    },
  },
  ie = {
    bytes: 112,
    read(e, t) {
      return {
        data: _.read(e, t),
        scale: _.read(e, t + 8),
        zeroPoint: _.read(e, t + 16),
        sums: g.read(e, t + 24),
        problem: re.read(e, t + 88),
      };
    },
  },
  ae = {
    bytes: 120,
    read(e, t) {
      const { HEAPU32: n } = e;
      return { encoded: ie.read(e, t), memory: n[(t >>> 2) + 28] + n[(t >>> 2) + 29] * 2 ** 32 };
    },
  },
  oe = {
    bytes: 8,
    write(e, t, n) {
      const { HEAPU32: r, HEAPU8: i } = e;
      (r[t >>> 2] = n.to), (i[t + 4] = +!!n.saturate);
    },
  },
  se = {
    bytes: 4,
    write(e, t, n) {
      const { HEAPU32: r } = e;
      r[t >>> 2] = n.to;
    },
  },
  ce = {
    bytes: 40,
    write(e, t, n) {
      const { HEAPF64: r, HEAPU32: i, HEAPU8: a } = e;
      (a[t + 0] = +!!n.float8),
        (i[(t >>> 2) + 1] = n.bits),
        (a[t + 8] = +!!n.symmetric),
        (i[(t >>> 2) + 3] = n.groupSize),
        (a[t + 16] = +!!n.packed),
        (i[(t >>> 2) + 5] = n.scale),
        (a[t + 24] = +!!n.search),
        (i[(t >>> 2) + 7] = n.method),
        (r[(t >>> 3) + 4] = n.percentile);
    },
  },
  le = {
    bytes: 32,
    write(e, t, n) {
      const { HEAPU32: r } = e;
      (r[t >>> 2] = n.rows),
        (r[(t >>> 2) + 1] = n.columns),
        _.write(e, t + 8, n.data),
        _.write(e, t + 16, n.scale),
        _.write(e, t + 24, n.zeroPoint);
    },
  },
  ue = {
    bytes: 16,
    read(e, t) {
      const { HEAPU32: n } = e;
      return { x: n[t >>> 2], memory: n[(t >>> 2) + 2] + n[(t >>> 2) + 3] * 2 ** 32 };
    },
  },
  v = {
    bytes: 40,
    write(e, t, n) {
      const { HEAPF64: r, HEAPU32: i, HEAPU8: a } = e;
      (i[t >>> 2] = n.bits),
        (a[t + 4] = +!!n.isSigned),
        (a[t + 5] = +!!n.symmetric),
        (i[(t >>> 2) + 2] = n.sharing),
        (i[(t >>> 2) + 3] = n.blockSize),
        (i[(t >>> 2) + 4] = n.scale),
        (a[t + 20] = +!!n.search),
        (i[(t >>> 2) + 6] = n.method),
        (r[(t >>> 3) + 4] = n.percentile);
    },
  },
  de = {
    bytes: 40,
    read(e, t) {
      const { HEAPU32: n } = e;
      return {
        ranges: n[t >>> 2],
        count: n[(t >>> 2) + 1],
        problem: re.read(e, t + 8),
        memory: n[(t >>> 2) + 8] + n[(t >>> 2) + 9] * 2 ** 32,
      };
    },
  },
  y = {
    bytes: 20,
    write(e, t, n) {
      const { HEAPU32: r, HEAPU8: i } = e;
      (r[t >>> 2] = n.bits),
        (r[(t >>> 2) + 1] = n.blockSize),
        (i[t + 8] = +!!n.symmetric),
        (i[t + 9] = +!!n.transposed),
        (r[(t >>> 2) + 3] = n.scale),
        (i[t + 16] = +!!n.search);
    },
  },
  b = {
    bytes: 12,
    write(e, t, n) {
      const { HEAPU32: r, HEAPU8: i } = e;
      (r[t >>> 2] = n.book), (r[(t >>> 2) + 1] = n.blockSize), (i[t + 8] = +!!n.transposed);
    },
  },
  fe = {
    bytes: 8,
    read(e, t) {
      const { HEAPF32: n } = e;
      return { min: n[t >>> 2], max: n[(t >>> 2) + 1] };
    },
  },
  x = {
    bytes: 40,
    read(e, t) {
      const { HEAPU32: n } = e;
      return {
        range: fe.read(e, t),
        problem: re.read(e, t + 8),
        memory: n[(t >>> 2) + 8] + n[(t >>> 2) + 9] * 2 ** 32,
      };
    },
  },
  S = {
    float32: Float32Array,
    int8: Int8Array,
    uint8: Uint8Array,
    int16: Int16Array,
    uint16: Uint16Array,
    int32: Int32Array,
  },
  C = 1 << 17,
  pe = 16384,
  me = 1024;
function he(e) {
  return Math.ceil(e / 16) * 16;
}
var ge = class {
  #e;
  #t;
  #n;
  #r;
  scratch;
  constructor(e) {
    this.#e = e;
    const t = he(this.allocate(1441792 + g.bytes + me + 32)),
      n = t + C * 4,
      r = n + C * 4,
      i = r + C * 2,
      a = i + pe * 4,
      o = a + pe * 4;
    (this.scratch = { elements: C, x: t, y: n, bits: r, scale: i, zeroPoint: a, sums: o }),
      (this.#n = he(o + g.bytes)),
      (this.#r = this.#n + me);
  }
  get module() {
    if (this.#e === void 0) throw t(`the instance`);
    return this.#e;
  }
  get disposed() {
    return this.#e === void 0;
  }
  dispose() {
    (this.#e = void 0), (this.#t = void 0);
  }
  tryAllocate(e) {
    return e < 2 ** 32 ? this.module.allocate(Math.max(e, 1)) : 0;
  }
  allocate(t) {
    const n = this.tryAllocate(t);
    if (n === 0) throw new e(`OUT_OF_MEMORY`, `wasm memory has no room for ${t} more bytes`);
    return n;
  }
  release(e) {
    this.#e?.release(e);
  }
  withMemory(e, t) {
    const n = this.allocate(e);
    try {
      return t(n);
    } finally {
      this.release(n);
    }
  }
  pushRecord(e, t) {
    const n = this.#n,
      r = n + e.bytes + (-e.bytes & 7);
    if (r > this.#r) throw Error(`scalepoint: too many records are nested`);
    return (e.write(this.module, n, t), (this.#n = r), n);
  }
  popRecord(e) {
    this.#n = e;
  }
  withRecord(e, t, n) {
    const r = this.pushRecord(e, t);
    try {
      return n(r);
    } finally {
      this.popRecord(r);
    }
  }
  view(e, t, n) {
    const r = S[e];
    return new r(this.module.HEAPU8.buffer, t, n);
  }
  viewAgain(e, t, n) {
    let r = this.#t;
    return (
      (r === void 0 ||
        r.dtype !== e ||
        r.address !== t ||
        r.view.length !== n ||
        r.buffer !== this.module.HEAPU8.buffer) &&
        ((r = { dtype: e, address: t, buffer: this.module.HEAPU8.buffer, view: this.view(e, t, n) }), (this.#t = r)),
      r.view
    );
  }
  heap(e) {
    const { module: t } = this;
    switch (e) {
      case `float32`:
        return t.HEAPF32;
      case `int8`:
        return t.HEAP8;
      case `uint8`:
        return t.HEAPU8;
      case `int16`:
        return t.HEAP16;
      case `uint16`:
        return t.HEAPU16;
      case `int32`:
        return t.HEAP32;
    }
  }
};
function _e(t) {
  if (t instanceof e || (t instanceof TypeError && `option` in t)) return t;
  const n = t instanceof Error ? t.message : String(t);
  return /unsafe-eval|Content Security Policy/i.test(n)
    ? new e(`CSP`, `The page's Content-Security-Policy forbids WebAssembly: add 'wasm-unsafe-eval' to script-src.`, {
        cause: t,
      })
    : new e(`WASM_LOAD`, `the wasm core could not be loaded: ${n}`, { cause: t });
}
function ve(e) {
  return new Promise((t, n) => {
    c({
      print() {},
      printErr() {},
      instantiateWasm(t, r) {
        return (WebAssembly.instantiate(e, t).then(r).catch(n), {});
      },
    }).then(t, n);
  });
}
async function ye(t) {
  try {
    const n = await ve(t);
    if (typeof n.buildId != `function` || n.buildId() !== 635438667)
      throw new e(`VERSION_MISMATCH`, `the wasm file belongs to another version of scalepoint than this JavaScript`);
    return new ge(n);
  } catch (e) {
    throw _e(e);
  }
}
function be(e) {
  const { process: t } = globalThis;
  return t?.getBuiltinModule?.(e);
}
function xe({ dev: e, ino: t }) {
  return e === void 0 || !t ? void 0 : `${e}:${t}`;
}
function Se(e) {
  const t = e instanceof Error ? e.message : a(e);
  return /^[A-Z0-9]+: ([^,]+)/.exec(t)?.[1] ?? t;
}
function Ce(t, n) {
  return new e(`IO`, `${t}: ${Se(n)}`, { cause: n });
}
function we(t, n) {
  return new e(`CHANGED`, `${t} became shorter while it was read`, { byteOffset: n });
}
function w(t, n, r) {
  if (Number.isInteger(t) && t >= 0 && t <= n) return t;
  throw new e(`IO`, `${r}: the count of bytes is ${a(t)}, of ${n} that were asked for`);
}
let T = /* @__PURE__ */ new ArrayBuffer(0);
async function E(e, t) {
  let n;
  try {
    n = t.stream().getReader({ mode: `byob` });
  } catch {
    const n = new Uint8Array(await t.arrayBuffer());
    return (e.set(n.subarray(0, e.length)), n.length);
  }
  T.byteLength === 0 && (T = /* @__PURE__ */ new ArrayBuffer(2 ** 20));
  for (let t = 0; ; ) {
    const { value: r, done: i } = await n.read(new Uint8Array(T));
    if ((r !== void 0 && (T = r.buffer), i || r === void 0)) return t;
    e.set(r, t), (t += r.length);
  }
}
async function Te(e, t, n) {
  let r = 0;
  try {
    r = await E(n, e.slice(t, t + n.length));
  } catch (e) {
    throw Ce(`cannot read the file`, e);
  }
  if (r !== n.length) throw we(`the file`, t + r);
}
function Ee(t, n, r, i) {
  for (let a = 0; a < i.length; ) {
    let [o, s] = [i.length - a, r + a],
      c,
      l;
    try {
      (c = t.readSync(n, i, a, o, s)), (l = c === 0 ? t.fstatSync(n).size : 0);
    } catch (e) {
      throw Ce(`cannot read the file`, e);
    }
    if (((a += w(c, o, `cannot read the file`)), !(c > 0)))
      throw l <= s ? we(`the file`, s) : new e(`IO`, `cannot read the file: no more bytes came`, { byteOffset: s });
  }
}
function De(t, n, r, i, a) {
  for (let o = 0; o < a.length; ) {
    let s = a.length - o,
      c;
    try {
      c = t.writeSync(n, a, o, s, i + o);
    } catch (e) {
      throw Ce(`cannot write ${r}`, e);
    }
    if (w(c, s, `cannot write ${r}`) === 0) throw new e(`IO`, `cannot write ${r}: no bytes were taken at ${i + o}`);
    o += c;
  }
}
function Oe(e, t, n) {
  try {
    return n(e.fstatSync(t));
  } catch {
    return !1;
  }
}
function ke(e, t, n, r) {
  let i;
  try {
    i = e.openSync(t, n | (e.constants.O_NONBLOCK ?? 0));
  } catch {
    return;
  }
  if (Oe(e, i, r)) return i;
  e.closeSync(i);
}
function D(e) {
  if (e.kind === `blob`) return (t, n) => Te(e.blob, t, n);
  const t = be(`node:fs`);
  if (t === void 0) return;
  const { place: n, size: r, mtimeMs: i } = e.stamp,
    a = (e) => xe(e) === n && e.size === r && e.mtimeMs === i;
  if (e.kind === `path`) {
    const n = ke(t, e.path, t.constants.O_RDONLY, a);
    return n === void 0 ? void 0 : async (e, r) => Ee(t, n, e, r);
  }
  const { descriptor: o } = e;
  return Oe(t, o, a) ? async (e, n) => Ee(t, o, e, n) : void 0;
}
function Ae({ path: e, label: t, place: n }) {
  const r = be(`node:fs`);
  if (r === void 0) return;
  const i = ke(r, e, r.constants.O_WRONLY, (e) => xe(e) === n);
  return i === void 0 ? void 0 : (e, n) => De(r, i, t, e, n);
}
var je = class {
  #e;
  #t = 0;
  constructor(e) {
    this.#e = e;
  }
  get onlyCounts() {
    return this.#e === void 0;
  }
  get size() {
    return this.#t;
  }
  take(e) {
    const t = Math.ceil(this.#t / 16) * 16;
    return ((this.#t = t + e), (this.#e ?? 0) + t);
  }
};
const Me = new Map(
    Object.entries(h).map(([e, t]) => {
      const [, n, r] = te.find(([e]) => e === t);
      return [e, Object.freeze({ name: e, id: t, elements: n, bytes: r })];
    }),
  ),
  Ne = Object.freeze(Object.keys(h));
function O(e) {
  return typeof e == `string` && Me.has(e);
}
function k(e) {
  const t = Me.get(e);
  if (t === void 0) throw r(`type`, `expected one of ${Ne.join(`, `)}, got ${a(e)}`);
  return t;
}
const A = 1 << 20,
  Pe = { F32: 4, F16: 2, BF16: 2, F64: 8 };
function j(e, t) {
  if (!O(e)) return t * Pe[e];
  const { elements: n, bytes: r } = k(e);
  return (t / n) * r;
}
function M(e) {
  return e.reduce((e, t) => e * t, 1);
}
function N(e, t, n, r) {
  return t === r ? { offset: e, bytes: t * n, count: 1, stride: t * n } : { offset: e, bytes: t, count: n, stride: r };
}
function P(e, t) {
  const { row: n, rows: r, column: i, columns: a, width: o } = t;
  return N(e(n * o + i), e(a), r, e(o));
}
function F(e, t) {
  return t === 0 ? e : F(t, e % t);
}
function Fe(e) {
  return e.reduce((e, t) => (e / F(e, t)) * t, 1);
}
function* Ie(e, t) {
  const n = t.find((e) => e.rows !== void 0)?.rows ?? 1,
    r = e / n,
    i = Fe(t.map((e) => e.rowUnit)),
    a = Math.floor(A / r / i) * i;
  if (a > 0) {
    for (let e = 0; e < n; e += a) yield { row: e, rows: Math.min(a, n - e), column: 0, columns: r, width: r };
    return;
  }
  const o = Fe([512, ...t.map(({ columnUnit: e }) => e)]),
    s = Math.max(1, Math.floor(A / i / o)) * o;
  for (let e = 0; e < n; e += i)
    for (let t = 0; t < r; t += s) {
      const a = Math.min(s, r - t);
      yield { row: e, rows: Math.min(i, n - e), column: t, columns: a, width: r };
    }
}
function* Le(e, t, n) {
  if (e?.rows === void 0) yield* I(t, n);
  else for (const r of Ie(t, [e])) yield { kind: `tile`, rectangle: r, roles: n };
}
function* I(e, t, n = A) {
  for (let r = 0; r < e; r += n) {
    const i = Math.min(n, e - r);
    yield { kind: `tile`, rectangle: { row: 0, rows: 1, column: r, columns: i, width: e }, roles: t };
  }
}
function L(t) {
  if (t === l.badScale) throw new e(`BAD_FILE`, `a scale is not a positive and finite number`);
  if (t !== l.ok) throw Error(`the core refused a tile with status ${t}`);
}
function R(e, t, n, r) {
  return e.withRecord({ bytes: n.bytes, write() {} }, void 0, (i) => {
    L(r(0, 0, i));
    const { memory: a } = n.read(e.module, i),
      o = t.take(a);
    if (!t.onlyCounts) return (L(r(o, a, i)), n.read(e.module, i));
  });
}
function z(e) {
  return O(e) ? k(e).id : f[e];
}
const Re = /* @__PURE__ */ new Float32Array();
function ze({ module: e }, { ranges: t = Re }, n) {
  if (t.length === 0) return 0;
  const r = n.take(4 * t.length);
  return n.onlyCounts ? Math.max(16, r) : (e.HEAPF32.set(t, r / 4), r);
}
function Be(e) {
  const t = u[e];
  if (t === void 0) throw Error(`scalepoint: the core makes no part '${e}'; see Role in cpp/codecs/codec.h`);
  return 1 << t;
}
function B({ ranges: e, roles: t }) {
  return e === void 0 || e.length === 0 || t.includes(`data`);
}
function V(e, t, n, r) {
  const { rows: i, columns: a, type: o, source: s, roles: c, measures: l } = t,
    u = B(t),
    d = {
      rows: i,
      columns: a,
      type: z(o),
      wanted: c.reduce((e, t) => e | Be(t), 0),
      measure: l,
      source: { data: s, size: u ? j(o, i * a) : 0 },
      ranges: n,
    };
  return e.withRecord(ne, d, r);
}
const Ve = {
  [d.none]: void 0,
  [d.nonFinite]: `non-finite`,
  [d.beyondFloat32]: `beyond float32`,
  [d.overflow]: `overflow`,
};
function H({ kind: e, index: t, value: n }) {
  const r = Ve[e];
  return r === void 0 ? {} : { problem: { kind: r, index: t, value: n } };
}
function U(e, t, n, r) {
  const i = V(e, t, ze(e, t, n), (t) => R(e, n, ae, (...e) => r(t, ...e)));
  if (i === void 0) return { parts: {} };
  const { problem: a, sums: o, ...s } = i.encoded,
    c = t.roles.map((e) => [e, s[e]]);
  return {
    parts: Object.fromEntries(c.map(([e, { data: t, size: n }]) => [e, { address: t, bytes: n }])),
    ...(t.measures ? { sums: Float64Array.from(Object.values(o)) } : {}),
    ...H(a),
  };
}
function W(e, t, n) {
  return R(e, t, ue, n)?.x ?? 0;
}
function He(e, t, n, r) {
  return { rows: t, columns: n, type: e, source: r, roles: [], measures: !1, ranges: void 0 };
}
function Ue(e, t, n, r, i, a) {
  return V(e, He(n, r, i, a), 0, (n) => W(e, t, (...t) => e.module.decodeElements(n, ...t)));
}
function We(e, t, n, r, i, a) {
  const o = V(e, He(n, r, i, a), 0, (n) => R(e, t, x, (...t) => e.module.observeTile(n, ...t)));
  if (o === void 0) return {};
  const { range: s, problem: c } = o;
  return { range: [s.min, s.max], ...H(c) };
}
function Ge(e, t, n, r) {
  const i = V(e, t, 0, (t) => R(e, n, de, (...e) => r(t, ...e)));
  if (i === void 0) return {};
  const { ranges: a, count: o, problem: s } = i;
  return { sets: e.module.HEAPF32.slice(a / 4, a / 4 + 2 * o), ...H(s) };
}
function Ke(e, t, n, r) {
  const i = (e) => {
    const t = n[e];
    return t === void 0 ? { data: 0, size: 0 } : { data: t, size: r(e) };
  };
  return { rows: e, columns: t, data: i(`data`), scale: i(`scale`), zeroPoint: i(`zeroPoint`) };
}
function qe({ module: e, scratch: t }, n, r, i) {
  const [a, o] = [t.sums / 8, (t.sums + g.bytes) / 8];
  return (e.HEAPF64.fill(0, a, o), L(e._accumulateError(n, r, i, t.sums)), e.HEAPF64.slice(a, o));
}
const Je = {
    F64: { bytes: 8, unit: 4, mask: 2146435072 },
    F32: { bytes: 4, unit: 4, mask: 2139095040 },
    F16: { bytes: 2, unit: 2, mask: 31744 },
    BF16: { bytes: 2, unit: 2, mask: 32640 },
    F8_E5M2: { bytes: 1, unit: 1, mask: 124 },
    F8_E4M3: { bytes: 1, unit: 1, mask: 127 },
    F8_E8M0: { bytes: 1, unit: 1, mask: 255 },
  },
  G = { wrong: `all`, one: `is NaN or infinite`, many: `are NaN or infinite` };
function K(e, t) {
  const n = Object.hasOwn(Je, e) ? Je[e] : void 0;
  if (n === void 0) return [];
  const { bytes: r, unit: i, mask: a } = n,
    o = { one: `${t} ${G.one}`, many: `${t}s ${G.many}` };
  return [{ unit: i, mask: a, wrong: `all`, at: r - i, stride: r, isProblem: t === `scale`, ...o }];
}
function Ye(e, t, n, r) {
  const { unit: i, mask: a } = Je[e];
  return {
    unit: i,
    mask: a,
    wrong: `all`,
    at: n,
    stride: r,
    isProblem: !0,
    one: `${t} ${G.one}`,
    many: `${t}s ${G.many}`,
    place: `block`,
  };
}
const Xe = {
    id: `cast`,
    isPlain: !0,
    label: ({ to: e }) => e,
    parts(e, { to: t }) {
      return [{ role: `data`, suffix: ``, dtype: t, shape: e, bytes: j(t, M(e)) }];
    },
    grid: () => ({ rows: void 0, rowUnit: 1, columnUnit: 1 }),
    place: (e, { to: t }, n, r) => P((e) => j(t, e), r),
    cuts: (e, t, n, r) => Le(r, M(e), n),
    elementType: ({ to: e }) => e,
    checks: (e, { to: t }) => K(t, `element`),
    overflow: ({ to: e }) => `, too large for ${e}`,
    encode(e, t, { to: n, saturate: r = !1 }, i) {
      return e.withRecord(oe, { to: f[n], saturate: r }, (n) =>
        U(e, t, i, (t, ...r) => e.module.encodeCast(t, n, ...r)),
      );
    },
    decode(e, { rows: t, columns: n, parts: r }, { to: i }, a) {
      return Ue(e, a, i, t, n, r.data);
    },
  },
  Ze = { method: p.mse, percentile: 100 },
  Qe = { method: p.entropy, percentile: 100 };
function $e(e) {
  if (e === `mse`) return Ze;
  if (e === `entropy`) return Qe;
  if (typeof e != `object` || !e || !(`percentile` in e)) return;
  const t = s(e.percentile, `range.percentile`);
  if (!(t > 50 && t <= 100)) throw r(`range.percentile`, `expected a number above 50, at most 100, got ${t}`);
  return { method: p.percentile, percentile: t };
}
function et(e) {
  const [t, n, r] = [e >> 15 ? -1 : 1, (e >> 10) & 31, e & 1023];
  return n === 31 ? (r === 0 ? t * (1 / 0) : NaN) : n === 0 ? t * r * 2 ** -24 : t * (1024 + r) * 2 ** (n - 25);
}
function tt(e, t) {
  const n = new DataView(e.buffer, e.byteOffset, e.byteLength);
  if (t === `F32`) return Float32Array.from({ length: e.length / 4 }, (e, t) => n.getFloat32(4 * t, !0));
  const r = (e) => n.getUint16(2 * e, !0);
  return t === `F16`
    ? Float32Array.from({ length: e.length / 2 }, (e, t) => et(r(t)))
    : new Float32Array(Uint32Array.from({ length: e.length / 2 }, (e, t) => r(t) * 2 ** 16).buffer);
}
function nt(e, t, n, r) {
  const i = new Int8Array(t * n),
    a = 8 / r,
    o = e.length / Math.max(1, t),
    s = 1 << (r - 1);
  for (let c = 0, l = 0; c < t; c++)
    for (let t = 0; t < n; t++, l++) {
      const n = e[c * o + Math.floor(t / a)];
      i[l] = ((n >> ((t % a) * r)) & (2 * s - 1)) - s;
    }
  return i;
}
function rt(e, t, n, r) {
  const i = new Int32Array(t * n),
    a = new DataView(e.buffer, e.byteOffset, e.byteLength),
    o = 32 / r,
    s = 1 << (r - 1);
  for (let e = 0; e < t; e++)
    for (let t = 0; t < n; t++) {
      const c = a.getUint32(4 * (Math.floor(e / o) * n + t), !0);
      i[e * n + t] = ((c >>> ((e % o) * r)) & (2 * s - 1)) - s;
    }
  return i;
}
function it(e, { bits: t, symmetric: n, groupSize: r, packed: i, scale: a }, o) {
  const s = e[0],
    c = M(e.slice(1)),
    [l, u, d] = [o.data, o.scale, o.zeroPoint],
    f = tt(u, a),
    p = f.length / Math.max(1, s);
  return {
    kind: `linear`,
    dtype: t === 4 ? `int4` : `int8`,
    shape: e,
    granularity: r === void 0 ? { kind: `per-channel`, axis: 0 } : { kind: `per-group`, groupSize: r, axis: 1 },
    data: i ? nt(l, s, c, t) : Int8Array.from(l, (e) => (e << 24) >> 24),
    scale: f,
    zeroPoint: n ? new Int32Array(f.length) : i ? rt(d, s, p, t) : Int32Array.from(d, (e) => (e << 24) >> 24),
  };
}
function q(e, t) {
  return Math.ceil((e * t) / 32);
}
function at(e, { packed: t, bits: n }) {
  return t ? q(e, n) * 4 : e;
}
function ot({ scale: e }) {
  return e === `F32` ? 4 : 2;
}
function J({ packed: e, symmetric: t, bits: n }) {
  return e && !t ? 32 / n : 1;
}
function st(e) {
  const t = new Uint8Array(8 * e.length),
    n = new DataView(t.buffer);
  return (
    e.forEach((e, t) => {
      n.setBigInt64(8 * t, BigInt(e), !0);
    }),
    t
  );
}
function ct(e, t) {
  const { type: n, bits: r, symmetric: i, groupSize: a, packed: o, scale: s } = t,
    [c = 0, ...l] = e,
    u = M(l),
    d = [c, ...(a === void 0 ? l.map(() => 1) : [u / a])],
    f = (e, t, n, r, i) => ({ role: e, suffix: t, dtype: n, shape: r, bytes: M(r) * i }),
    p = [
      o ? f(`data`, `_packed`, `I32`, [c, q(u, r)], 4) : f(`data`, ``, n === `float` ? `F8_E4M3` : `I8`, e, 1),
      f(`scale`, `_scale`, s, d, ot(t)),
    ];
  if (!i) {
    const e = [q(c, r), ...d.slice(1)];
    p.push(o ? f(`zeroPoint`, `_zero_point`, `I32`, e, 4) : f(`zeroPoint`, `_zero_point`, `I8`, d, 1));
  }
  return (o && p.push({ ...f(`shape`, `_shape`, `I64`, [e.length], 8), constant: st(e) }), p);
}
function lt(e, t, { row: n, rows: r, column: i, columns: a, width: o }) {
  if (t === `data`) {
    const t = (t) => at(t, e);
    return N(n * t(o) + t(i), t(a), r, t(o));
  }
  const { groupSize: s } = e,
    c = s === void 0 ? 1 : o / s,
    l = s === void 0 ? 1 : a / s,
    u = s === void 0 ? 0 : i / s;
  if (t === `scale`) {
    const t = ot(e);
    return N((n * c + u) * t, l * t, r, c * t);
  }
  const d = J(e),
    f = e.packed ? 4 : 1;
  return N((Math.floor(n / d) * c + u) * f, l * f, Math.ceil(r / d), c * f);
}
function ut(e, t, n) {
  const r = e[0],
    i = M(e.slice(1)),
    a = Fe([J(t), n?.rowUnit ?? 1]),
    o = Fe([t.groupSize ?? 512, n?.rows === void 0 ? 1 : n.columnUnit]);
  return { rows: r, width: i, rowsPerTile: Math.floor(A / i / a) * a, segment: Math.max(1, Math.floor(A / a / o)) * o };
}
function dt(e, t) {
  return t.groupSize === void 0 && ut(e, t).rowsPerTile === 0;
}
function* ft(e, t, n, r) {
  const { rows: i, width: a, rowsPerTile: o } = ut(e, t, r);
  if (i * a !== 0) {
    if (o === 0) {
      const a = J(t);
      for (let o = 0; o < i; o += a) yield* pt(e, t, n, o, Math.min(a, i - o), r);
    } else
      for (let e = 0; e < i; e += o)
        yield {
          kind: `tile`,
          rectangle: { row: e, rows: Math.min(o, i - e), column: 0, columns: a, width: a },
          roles: n,
        };
  }
}
function* pt(e, t, n, r, i, a) {
  let { width: o, segment: s } = ut(e, t, a),
    c = (e, t) =>
      Array.from({ length: Math.ceil(o / s) }, (n, r) => {
        const i = r * s;
        return { row: e, rows: t, column: i, columns: Math.min(s, o - i), width: o };
      }),
    l = [],
    u = n;
  if (t.groupSize === void 0) {
    for (let e = 0; e < i; e++) l.push(yield { kind: `range`, rectangles: c(r + e, 1) });
    const e = n.filter((e) => e !== `data`);
    (u = n.filter((e) => e === `data`)),
      e.length > 0 &&
        (yield {
          kind: `tile`,
          rectangle: { row: r, rows: i, column: 0, columns: o, width: o },
          roles: e,
          ranges: Float32Array.from(l.flat()),
          reads: !1,
        });
  } else if (J(t) > 1 && n.includes(`zeroPoint`)) {
    u = n.filter((e) => e !== `zeroPoint`);
    for (const e of c(r, i)) yield { kind: `tile`, rectangle: e, roles: [`zeroPoint`] };
  }
  if (u.length !== 0)
    for (let e = 0; e < i; e++) {
      const t = l[e];
      for (const n of c(r + e, 1))
        yield { kind: `tile`, rectangle: n, roles: u, ...(t === void 0 ? {} : { ranges: Float32Array.from(t) }) };
    }
}
function mt(e, t) {
  const n = (e * t) % 32;
  return n === 0 ? 0 : (-1 << n) >>> 0;
}
function ht(e, t, n) {
  const { type: r, bits: i, packed: a, scale: o, groupSize: s } = t,
    [c = 0, ...l] = e,
    u = M(l);
  if (n === `scale`) return K(o, `scale`);
  if (r === `float`) return K(`F8_E4M3`, `element`).map((e) => ({ ...e, isProblem: !0 }));
  if (!a || c * u === 0) return [];
  const d = {
    unit: 4,
    wrong: `any`,
    isProblem: !0,
    one: `word has bits behind its last code`,
    many: `words have bits behind their last code`,
  };
  if (n === `data`) {
    const e = q(u, i) * 4;
    return [{ ...d, at: e - 4, stride: e, mask: mt(u, i), place: `row` }];
  }
  const f = s === void 0 ? 1 : u / s;
  return [{ ...d, at: (q(c, i) - 1) * f * 4, stride: 4, mask: mt(c, i), place: `group` }];
}
function gt({ type: e, bits: t, symmetric: n, groupSize: r, packed: i, scale: a, range: o }) {
  return {
    float8: e === `float`,
    bits: t,
    symmetric: n,
    groupSize: r ?? 0,
    packed: i,
    scale: f[a],
    search: o !== void 0,
    ...($e(o) ?? Ze),
  };
}
const _t = {
    id: `compressed-tensors`,
    label: ({ type: e, bits: t }) => (e === `float` ? `F8_E4M3` : `I${t}`),
    parts: ct,
    grid: (e, t) => ({ rows: e[0], rowUnit: J(t), columnUnit: t.groupSize ?? 1 }),
    place: (e, t, n, r) => lt(t, n, r),
    cuts: ft,
    encode(e, t, n, r) {
      const i = B(t) ? t : { ...t, columns: 1 };
      return e.withRecord(ce, gt(n), (t) => U(e, i, r, (n, ...r) => e.module.encodeCompressedTensors(n, t, ...r)));
    },
    decode(e, { rows: t, columns: n, parts: r }, i, a) {
      const o = { row: 0, rows: t, column: 0, columns: n, width: n },
        s = (e) => {
          const t = r[e];
          if (t === void 0) return { data: 0, size: 0 };
          const { bytes: n, count: a } = lt(i, e, o);
          return { data: t, size: n * a };
        },
        c = { rows: t, columns: n, data: s(`data`), scale: s(`scale`), zeroPoint: s(`zeroPoint`) };
      return e.withRecord(ce, gt(i), (t) =>
        e.withRecord(le, c, (n) => W(e, a, (...r) => e.module.decodeCompressedTensors(n, t, ...r))),
      );
    },
    codes: (e, t, n) => (t.type === `float` ? void 0 : it(e, t, n)),
    checks: ht,
    overflow: () => `, too large for the scale`,
    notes(e) {
      const t = e.filter(({ shape: e, form: t }) => t.range !== void 0 && dt(e, t)).length;
      return t === 0
        ? []
        : [
            `range: the channels of ${t === 1 ? `a tensor` : `${t} tensors`} are too long to search; their range is min-max`,
          ];
    },
  },
  vt = { F32: 4, F16: 2, BF16: 2 };
function yt({ dtype: e }) {
  return vt[e] ?? 1;
}
const bt = {
  id: `copy`,
  label: ({ dtype: e }) => e,
  parts(e, { dtype: t, bytes: n }) {
    return [{ role: `data`, suffix: ``, dtype: t, shape: e, bytes: n }];
  },
  grid: () => ({ rows: void 0, rowUnit: 1, columnUnit: 1 }),
  place(e, t, n, r) {
    return P((e) => e * yt(t), r);
  },
  cuts(e, t, n) {
    return t.dtype in vt ? I(M(e), n) : I(t.bytes, n, A * 4);
  },
  elementType: ({ dtype: e }) => e,
  checks(e, { dtype: t }) {
    if (t !== `BOOL`) return K(t, `element`);
    const [n, r] = [`element is neither 0 nor 1`, `elements are neither 0 nor 1`];
    return [{ unit: 1, at: 0, stride: 1, mask: 254, wrong: `any`, isProblem: !0, one: n, many: r }];
  },
  encode(e, t, n, r) {
    const { rows: i, columns: a, source: o, measures: s } = t,
      c = { data: { address: o, bytes: i * a * yt(n) } };
    return !s || !(n.dtype in vt) ? { parts: c } : { ...U(e, t, r, (...t) => e.module.encodeCopy(...t)), parts: c };
  },
};
function xt(e, { sharing: t, axis: n, blockSize: r }) {
  const i = r ?? 0;
  if (n === void 0) return { sharing: t, rows: 1, columns: M(e), period: 1, block: i };
  const a = M(e.slice(0, n)),
    o = e[n];
  return t === `columns` || t === `rowBlocks`
    ? { sharing: t, rows: a, columns: o, period: a, block: i }
    : { sharing: t, rows: a * o, columns: M(e.slice(n + 1)), period: o, block: i };
}
function St({ bits: e, signed: t }) {
  return `${t ? `I` : `U`}${e}`;
}
function Ct(e, { axis: t, blockSize: n }) {
  return t === void 0 ? [] : n === void 0 ? [e[t]] : e.map((e, r) => (r === t ? Math.ceil(e / n) : e));
}
function wt(e, t) {
  const n = Ct(e, t),
    r = St(t),
    i = (e, n, i) => ({ role: e, suffix: n, dtype: r, shape: i, bytes: Math.ceil((M(i) * t.bits) / 8) }),
    a = { role: `scale`, suffix: `_scale`, dtype: t.scale, shape: n };
  return [
    i(`data`, `_quantized`, e),
    { ...a, bytes: M(n) * (t.scale === `F16` ? 2 : 4) },
    ...(t.zeroPoint ? [i(`zeroPoint`, `_zero_point`, n)] : []),
  ];
}
function Tt(e, t, n) {
  const { sharing: r, period: i, block: a } = e,
    { row: o, rows: s, column: c, columns: l, width: u } = n;
  if (r === `tile`) return N(0, t(1), 1, t(1));
  if (r === `columns`) return N(t(c), t(l), 1, t(l));
  if (r === `rowBlocks`) {
    const e = Math.ceil(u / a);
    return l === u ? N(t(o * e), t(s * e), 1, t(s * e)) : N(t(o * e + c / a), t(Math.ceil(l / a)), s, t(e));
  }
  if (r === `rows` && s > i) return { offset: 0, bytes: t(i), count: s / i, stride: 0 };
  if (r === `rows`) return N(t(o % i), t(s), 1, t(s));
  const d = Math.ceil(i / a),
    f = Math.floor(o / i) * d + (o % i) / a,
    p = s > i ? (s / i) * d : Math.ceil(s / a);
  return l === u ? N(t(f * u), t(p * u), 1, t(p * u)) : N(t(f * u + c), t(l), p, t(u));
}
function Et(e, t, n, r) {
  const i = (e) => Math.ceil((e * t.bits) / 8);
  if (n === `data`) {
    const { row: e, rows: t, column: n, columns: a, width: o } = r;
    return n === 0 && a === o ? N(i(e * o), i(t * o), 1, i(t * o)) : N(i(e * o + n), i(a), t, i(o));
  }
  return Tt(xt(e, t), (e) => (n === `zeroPoint` ? i(e) : e * (t.scale === `F16` ? 2 : 4)), r);
}
function Dt({ sharing: e, columns: t, block: n }, { bits: r }) {
  const i = e === `columnBlocks` ? n : 1,
    a = e === `rowBlocks` ? Math.ceil(t / n) : e === `columnBlocks` ? t : 8;
  for (const e of [1, 2, 4]) if ((i * e * t * r) % 8 == 0 && (a * e * r) % 8 == 0) return i * e;
  return i * 8;
}
function* Ot({ rows: e, columns: t, period: n }, r) {
  const i = Math.max(1, Math.floor(A / t / r)) * r;
  for (let r = 0; r < e; r += n)
    for (let e = r; e < r + n; e += i) yield { row: e, rows: Math.min(i, r + n - e), column: 0, columns: t, width: t };
}
function* kt({ rows: e, columns: t }) {
  for (let n = 0; n < e; n++)
    for (let e = 0; e < t; e += A) yield { row: n, rows: 1, column: e, columns: Math.min(A, t - e), width: t };
}
function* At({ rows: e, columns: t }) {
  const n = Math.max(1, Math.floor(A / e));
  for (let r = 0; r < t; r += n) yield { row: 0, rows: e, column: r, columns: Math.min(n, t - r), width: t };
}
function* jt(e, t, n) {
  const r = xt(e, t),
    { sharing: i, rows: a, columns: o, period: s } = r;
  if (a * o === 0) return;
  const c = t.blockSize !== void 0,
    l = a * o <= 1048576 && a === s;
  if (c || l || (i === `rows` && a === s && o <= 1048576)) {
    for (const e of Ot(r, Dt(r, t))) yield { kind: `tile`, rectangle: e, roles: n };
    return;
  }
  const u = i === `tile` || o > 1048576 ? [...kt(r)] : [...Ot(r, 1)],
    d = t.range !== void 0,
    f = ({ row: e, column: t }) => (i === `tile` ? 0 : i === `columns` ? t : e % s),
    p = i === `columns` && d ? [...At(r)] : u,
    m = yield {
      kind: `sets`,
      count: i === `tile` ? 1 : i === `columns` ? o : s,
      pieces: p.map((e) => ({ rectangle: e, first: f(e) })),
    },
    h = n.filter((e) => e !== `data`);
  if (
    (h.length > 0 &&
      (yield {
        kind: `tile`,
        rectangle: { row: 0, rows: i === `rows` ? s : a, column: 0, columns: o, width: o },
        roles: h,
        ranges: m,
        reads: !1,
      }),
    n.includes(`data`))
  )
    for (const e of u) {
      const t = f(e),
        n = i === `rows` ? e.rows : i === `columns` ? e.columns : 1;
      yield { kind: `tile`, rectangle: e, roles: [`data`], ranges: m.subarray(2 * t, 2 * (t + n)) };
    }
}
function Mt({ bits: e, signed: t, symmetric: n, sharing: r, blockSize: i, scale: a, range: o }) {
  return {
    bits: e,
    isSigned: t,
    symmetric: n,
    sharing: m[r],
    blockSize: i ?? 0,
    scale: f[a],
    search: o !== void 0,
    ...($e(o) ?? Ze),
  };
}
const Nt = {
  id: `dequantize-linear`,
  label: St,
  parts: wt,
  grid(e, t) {
    const n = xt(e, t),
      { sharing: r, rows: i, period: a, block: o } = n;
    return r === `tile`
      ? { rows: void 0, rowUnit: 1, columnUnit: 8 }
      : { rows: i, rowUnit: i === a ? Dt(n, t) : a, columnUnit: r === `rowBlocks` ? o : 8 };
  },
  place: Et,
  cuts: jt,
  encode(e, t, n, r) {
    const i = n.sharing === `columns` ? { rows: 1 } : { columns: 1 },
      a = B(t) ? t : { ...t, ...i };
    return e.withRecord(v, Mt(n), (t) => U(e, a, r, (n, ...r) => e.module.encodeDequantizeLinear(n, t, ...r)));
  },
  observe(e, t, n, r) {
    return e.withRecord(v, Mt(n), (n) => Ge(e, t, r, (t, ...r) => e.module.observeDequantizeLinear(t, n, ...r)));
  },
  decode(e, { rows: t, columns: n, parts: r }, i, a) {
    const o = Ke(t, n, r, (e) => Pt(i, t, n, e));
    return e.withRecord(v, Mt(i), (t) =>
      e.withRecord(le, o, (n) => W(e, a, (...r) => e.module.decodeDequantizeLinear(n, t, ...r))),
    );
  },
  overflow: ({ scale: e }) => `, too large for a scale of ${e}`,
};
function Pt(e, t, n, r) {
  const i = (t) => Math.ceil((t * e.bits) / 8);
  if (r === `data`) return i(t * n);
  const a = e.blockSize ?? 1,
    o = { tile: 1, rows: t, columns: n, rowBlocks: t * Math.ceil(n / a), columnBlocks: Math.ceil(t / a) * n }[
      e.sharing
    ];
  return r === `zeroPoint` ? i(o) : o * (e.scale === `F16` ? 2 : 4);
}
const Y = (e) => ({ type: `F16`, what: `block scale`, at: e }),
  X = (e) => ({ type: `F16`, what: `block minimum`, at: e }),
  Ft = {
    Q4_0: [Y(0)],
    Q4_1: [Y(0), X(2)],
    Q5_0: [Y(0)],
    Q5_1: [Y(0), X(2)],
    Q8_0: [Y(0)],
    Q2_K: [Y(80), X(82)],
    Q3_K: [Y(108)],
    Q4_K: [Y(0), X(2)],
    Q5_K: [Y(0), X(2)],
    Q6_K: [Y(208)],
    IQ4_NL: [Y(0)],
    MXFP4: [{ type: `F8_E8M0`, what: `block scale`, at: 0 }],
  },
  It = {
    id: `ggml`,
    label: ({ to: e }) => e,
    parts(e, { to: t }) {
      return [{ role: `data`, suffix: ``, dtype: t, shape: e, bytes: j(t, M(e)) }];
    },
    grid: (e, { to: t }) => ({ rows: void 0, rowUnit: 1, columnUnit: k(t).elements }),
    place: (e, { to: t }, n, r) => P((e) => j(t, e), r),
    cuts: (e, t, n) => I(M(e), n),
    codes: (e, { to: t }, { data: n }) => n && { kind: `blocks`, type: t, shape: e, data: n },
    elementType: ({ to: e }) => e,
    checks(e, { to: t }) {
      const { bytes: n } = k(t);
      return Ft[t].map(({ type: e, what: t, at: r }) => Ye(e, t, r, n));
    },
    overflow: ({ to: e }) => `, whose block of ${e} would need a scale beyond float16`,
    encode(e, t, { to: n }, r) {
      return e.withRecord(se, { to: k(n).id }, (n) => U(e, t, r, (t, ...r) => e.module.encodeGgml(t, n, ...r)));
    },
    decode(e, { rows: t, columns: n, parts: r }, { to: i }, a) {
      return Ue(e, a, i, t, n, r.data);
    },
  };
function Lt(e, { transposed: t, bits: n, blockSize: r, scale: i }) {
  const [a = 1, o = 1] = e,
    [s, c] = t ? [o, a] : [a, o],
    l = Math.ceil(s / r),
    u = (r * n) / 8;
  return {
    k: s,
    n: c,
    blocks: l,
    blockBytes: u,
    bytes: { data: l * u, scale: l * (i === `F16` ? 2 : 4), zeroPoint: Math.ceil((l * n) / 8) },
  };
}
function Rt(e, t) {
  const { n, blocks: r, blockBytes: i, bytes: a } = Lt(e, t),
    o = (e, t, r, i) => ({ role: e, suffix: t, dtype: r, shape: [n, ...i], bytes: n * a[e] });
  return [
    o(`data`, `_Q${t.bits}`, `U8`, [r, i]),
    o(`scale`, `_scales`, t.scale, [r]),
    ...(t.zeroPoint ? [o(`zeroPoint`, `_zero_points`, `U8`, [a.zeroPoint])] : []),
  ];
}
function* zt(e, t, n) {
  const [r = 0, i = 0] = e,
    [a, o] = t ? [i, r] : [r, i];
  if (a * o === 0) return;
  const s = Math.max(1, Math.floor(A / a / 16)) * 16;
  for (let e = 0; e < o; e += s) {
    const r = Math.min(s, o - e);
    yield {
      kind: `tile`,
      rectangle: t
        ? { row: e, rows: r, column: 0, columns: a, width: a }
        : { row: 0, rows: a, column: e, columns: r, width: o },
      roles: n,
    };
  }
}
function Bt({ bits: e, blockSize: t, zeroPoint: n, transposed: r, scale: i, range: a }) {
  return { bits: e, blockSize: t, symmetric: !n, transposed: r, scale: f[i], search: a !== void 0 };
}
const Vt = {
  id: `matmul-nbits`,
  label: ({ bits: e, blockSize: t }) => `Q${e} (${t})`,
  parts: Rt,
  grid(e, t) {
    const { k: n } = Lt(e, t);
    return t.transposed ? { rows: e[0], rowUnit: 1, columnUnit: n } : { rows: e[0], rowUnit: n, columnUnit: 1 };
  },
  place(e, t, n, { row: r, rows: i, column: a, columns: o }) {
    const s = Lt(e, t).bytes[n],
      [c, l] = t.transposed ? [r, i] : [a, o];
    return N(c * s, l * s, 1, l * s);
  },
  cuts: (e, { transposed: t }, n) => zt(e, t, n),
  encode(e, t, n, r) {
    return e.withRecord(y, Bt(n), (n) => U(e, t, r, (t, ...r) => e.module.encodeMatmulNbits(t, n, ...r)));
  },
  decode(e, { rows: t, columns: n, parts: r }, i, a) {
    const { n: o, bytes: s } = Lt([t, n], i),
      c = Ke(t, n, r, (e) => o * s[e]);
    return e.withRecord(y, Bt(i), (t) =>
      e.withRecord(le, c, (n) => W(e, a, (...r) => e.module.decodeMatmulNbits(n, t, ...r))),
    );
  },
  overflow: ({ scale: e }) => `, too large for a scale of ${e}`,
};
function Ht({ blockSize: e, transposed: t }) {
  return { book: ee.nf4, blockSize: e, transposed: t };
}
const Ut = {
    id: `matmul-bnb4`,
    label: ({ blockSize: e }) => `NF4 (${e})`,
    parts(e, { blockSize: t }) {
      const n = M(e);
      return [
        { role: `data`, suffix: `_Bnb4`, dtype: `U8`, shape: [n / 2], bytes: n / 2 },
        { role: `scale`, suffix: `_absmax`, dtype: `F32`, shape: [n / t], bytes: (4 * n) / t },
      ];
    },
    grid(e, { transposed: t }) {
      const [n = 1, r = 1] = e;
      return t ? { rows: n, rowUnit: 1, columnUnit: r } : { rows: n, rowUnit: n, columnUnit: 1 };
    },
    place(e, { transposed: t, blockSize: n }, r, { row: i, rows: a, column: o, columns: s }) {
      const [c, l, u] = t ? [i, a, e[1]] : [o, s, e[0]],
        d = r === `data` ? u / 2 : (4 * u) / n;
      return N(c * d, l * d, 1, l * d);
    },
    cuts: (e, { transposed: t }, n) => zt(e, t, n),
    encode(e, t, n, r) {
      return e.withRecord(b, Ht(n), (n) => U(e, t, r, (t, ...r) => e.module.encodeMatmulBnb4(t, n, ...r)));
    },
    decode(e, { rows: t, columns: n, parts: r }, i, a) {
      const o = t * n,
        s = Ke(t, n, r, (e) => (e === `data` ? o / 2 : (4 * o) / i.blockSize));
      return e.withRecord(b, Ht(i), (t) =>
        e.withRecord(le, s, (n) => W(e, a, (...r) => e.module.decodeMatmulBnb4(n, t, ...r))),
      );
    },
  },
  Wt = /* @__PURE__ */ new Map();
for (const e of [bt, Xe, It, _t, Nt, Vt, Ut]) Wt.set(e.id, e);
function Z({ codec: e }) {
  const t = Wt.get(e);
  if (t === void 0) throw Error(`there is no codec ${e}`);
  return t;
}
const Gt = g.bytes / 8,
  Kt = g.read({ HEAPF64: Float64Array.from({ length: Gt }, (e, t) => t) }, 0);
function Q(e) {
  return e[Kt.nonFinite];
}
var $ = class extends Error {
  task;
  writing;
  cause;
  constructor(e, t, n = !1) {
    super(`task ${e} failed`), (this.task = e), (this.writing = n), (this.cause = t);
  }
};
function qt({ pieces: e }) {
  return e.flatMap(({ inputs: e }) => e);
}
const Jt = 1 << 20,
  Yt = (e) => Math.ceil(e / 16) * 16;
function Xt(e, t, n, r) {
  const i = Z(n).elementType?.(n),
    [a = 0] = Object.values(r.parts);
  return i === void 0 ? { type: `F32`, source: Zt(e, t, n, r) } : { type: i, source: a };
}
function Zt(e, t, n, r) {
  const i = Z(n);
  if (i.decode === void 0) throw Error(`${i.id} cannot be read as floats`);
  return i.decode(e, r, n, t);
}
function Qt(e, t) {
  if (e.kind !== `encode` || t.kind !== `encode` || e.ranges !== void 0 || t.ranges !== void 0) return !1;
  const [[n], [r]] = [e.pieces, t.pieces];
  return (
    e.to === t.to &&
    n.form === r.form &&
    e.rows === t.rows &&
    e.columns === t.columns &&
    e.measures === t.measures &&
    e.outputs.length === t.outputs.length &&
    e.outputs.every(({ role: e }, n) => e === t.outputs[n]?.role) &&
    n.inputs.length === r.inputs.length &&
    n.inputs.every(({ bytes: e, count: t }, n) => e === r.inputs[n]?.bytes && t === r.inputs[n]?.count)
  );
}
var $t = class {
  #e;
  #t;
  #n;
  constructor(e) {
    this.#e = e;
  }
  async run({ tasks: e }, t, n, r = async () => {}) {
    const i = [];
    for (const [a, o] of e.entries()) {
      try {
        this.#o(this.#i(o)), await t.fill(o, this.#c(o)), await r(), i.push(this.#l(o, n));
      } catch (e) {
        throw e instanceof $ ? e : new $(a, e);
      }
      if (i.at(-1)?.problem !== void 0) break;
    }
    return i;
  }
  #r({ pieces: e }, t) {
    let n = 0;
    return {
      places: e.map(({ inputs: e }) => {
        const r = {};
        for (const { role: i, bytes: a, count: o } of e) (r[i] = t + n), (n = Yt(n + a * o));
        return r;
      }),
      size: n,
    };
  }
  #i(e) {
    if (this.#n !== void 0 && Qt(e, this.#n.task)) return this.#n.size;
    const t = this.#a(e);
    return ((this.#n = { task: e, size: t }), t);
  }
  #a(e) {
    const { places: t, size: n } = this.#r(e, 0),
      r = new je();
    return (this.#u(e, t, r), n + r.size);
  }
  #o(e) {
    if (this.#t !== void 0 && this.#t.size >= e) return;
    this.#t !== void 0 && this.#e.release(this.#t.base), (this.#t = void 0);
    const t = Math.ceil(e / Jt) * Jt;
    this.#t = { base: this.#e.allocate(t + 16), size: t };
  }
  #s() {
    return Yt(this.#t?.base ?? 0);
  }
  #c(e) {
    const { places: t } = this.#r(e, this.#s()),
      { buffer: n } = this.#e.module.HEAPU8;
    return e.pieces.flatMap(({ inputs: e }, r) =>
      e.map(({ role: e, bytes: i, count: a }) => new Uint8Array(n, t[r]?.[e], i * a)),
    );
  }
  #l(e, t) {
    const n = this.#s(),
      { places: r, size: i } = this.#r(e, n),
      { parts: a, ...o } = this.#u(e, r, new je(n + i));
    if (e.kind !== `encode` || o.problem !== void 0) return o;
    for (const { role: n, offset: r, bytes: i } of e.outputs) {
      const e = a[n];
      if (e?.bytes !== i) throw Error(`the ${n} of a tile has ${e?.bytes} bytes instead of ${i}`);
      t(r, this.#e.module.HEAPU8.subarray(e.address, e.address + i));
    }
    return o;
  }
  #u(e, t, n) {
    const { rows: r, columns: i } = e,
      [a, o] = t.map((e) => ({ rows: r, columns: i, parts: e }));
    if (e.kind === `encode`) return this.#f(e, a, n);
    if (e.kind === `range`) {
      const { type: t, source: o } = Xt(this.#e, n, e.pieces[0].form, a);
      return { parts: {}, ...We(this.#e, n, t, r, i, o) };
    }
    if (e.kind === `sets`) return { parts: {}, ...this.#d(e, a, n) };
    const [s, c] = e.pieces,
      l = Zt(this.#e, n, s.form, a),
      u = Zt(this.#e, n, c.form, o);
    if (n.onlyCounts) return { parts: {} };
    const d = (e, t) => qe(this.#e, e, t, r * i),
      f = d(l, u),
      p = Q(f);
    return { parts: {}, sums: f, mismatched: p === 0 ? 0 : 2 * p - Q(d(l, l)) - Q(d(u, u)) };
  }
  #d({ rows: e, columns: t, pieces: n, to: r }, i, a) {
    const o = Z(r);
    if (o.observe === void 0) throw Error(`${o.id} cannot be asked`);
    const s = { rows: e, columns: t, ...Xt(this.#e, a, n[0].form, i), roles: [`data`], measures: !1, ranges: void 0 };
    return o.observe(this.#e, s, r, a);
  }
  #f(e, t, n) {
    const { pieces: r, rows: i, columns: a, outputs: o, measures: s, ranges: c, to: l } = e,
      [{ form: u, inputs: d }] = r,
      f = Z(l);
    if (f.encode === void 0) throw Error(`${f.id} cannot be written`);
    const p = d.length === 0 ? { type: `F32`, source: 0 } : Xt(this.#e, n, u, t),
      m = o.map(({ role: e }) => e);
    return f.encode(this.#e, { rows: i, columns: a, ...p, roles: m, measures: s, ranges: c }, l, n);
  }
};
function en(e) {
  const t = e.filter(({ bytes: e, count: t }) => t === 1 && e <= 65536);
  t.sort((e, t) => e.file - t.file || e.begin - t.begin);
  const n = [];
  for (const e of t) {
    const { file: t, begin: r, bytes: i } = e,
      a = r + i,
      o = n.at(-1);
    o?.file === t && r <= o.end + 4096 && a - o.begin <= 1048576
      ? (o.inputs.push(e), (o.end = Math.max(o.end, a)))
      : n.push({ file: t, begin: r, end: a, inputs: [e] });
  }
  return n.filter(({ inputs: e }) => e.length > 1);
}
var tn = class {
  #e;
  #t = /* @__PURE__ */ new Map();
  constructor(e) {
    this.#e = e;
  }
  async begin(e, t = /* @__PURE__ */ new Map()) {
    this.#t.clear();
    for (const [e, n] of t) this.#t.set(e, n);
    for (const { file: t, begin: n, end: r, inputs: i } of en(e)) {
      const e = new Uint8Array(r - n);
      if (
        await this.#e(t, n, e).then(
          () => !0,
          () => !1,
        )
      )
        for (const t of i) {
          const r = t.begin - n;
          this.#t.set(t, e.subarray(r, r + t.bytes));
        }
    }
  }
  async fill(e, t) {
    for (const [n, r] of qt(e).entries()) await this.put(r, t[n]);
  }
  async put(e, t) {
    const n = this.#t.get(e);
    if (n !== void 0) {
      t.set(n);
      return;
    }
    const { file: r, begin: i, bytes: a, count: o, stride: s } = e;
    for (let e = 0; e < o; e++) await this.#e(r, i + e * s, t.subarray(e * a, (e + 1) * a));
  }
};
function nn({ outputBytes: e }, t) {
  const n = t?.byteLength === e ? t : new ArrayBuffer(e),
    r = new Uint8Array(n);
  return { put: (e, t) => r.set(t, e), end: () => n };
}
function rn({ tasks: e }, t) {
  return Math.max(
    0,
    e.findIndex((e) => e.kind === `encode` && e.outputs.some((e) => e.offset <= t && t < e.offset + e.bytes)),
  );
}
function an(e, t, n) {
  const r = (r, i) => {
    const a = r + i.length;
    for (let o = 0; o < t.length; o += 4) {
      const s = t[o + 2],
        c = Math.max(r, s),
        l = Math.min(a, s + t[o + 3]);
      if (!(c >= l))
        try {
          const e = n[t[o]];
          e(t[o + 1] + c - s, i.subarray(c - r, l - r));
        } catch (t) {
          throw new $(rn(e, c), t, !0);
        }
    }
  };
  if (e.tasks.length === 1) return { put: r, end: () => /* @__PURE__ */ new ArrayBuffer(0) };
  const i = nn(e, void 0);
  return {
    put: i.put,
    end() {
      return (r(0, new Uint8Array(i.end())), /* @__PURE__ */ new ArrayBuffer(0));
    },
  };
}
let on,
  sn = [],
  cn = [];
async function ln(e, t, n) {
  const r = sn[e];
  if (r === void 0) throw Error(`file ${e} cannot be read here`);
  await r(t, n);
}
const un = new tn(ln);
function dn(e) {
  return e instanceof Error ? e.message : String(e);
}
function fn(e) {
  return new Promise((t) => {
    navigator.locks.request(e, () => (t(!0), new Promise(() => {}))).catch(() => t(!1));
  });
}
async function pn(e, t) {
  if (e.kind === `start`) {
    sn = e.sources.map((e) => e && D(e));
    const n = e.sinks.map((e) => e && Ae(e));
    (cn = n.filter((e) => e !== void 0)), (on = new $t(await ye(e.module)));
    const r = e.lock !== void 0 && (await fn(e.lock)),
      i = sn.map((e) => e !== void 0);
    t.postMessage({ kind: `ready`, locked: r, reads: i, writes: cn.length === n.length }, []);
    return;
  }
  const { id: n, batch: r, given: i, spare: a } = e;
  if (on === void 0) throw Error(`a batch came before the start`);
  const o = r.tasks.flatMap(qt),
    s = ({ file: e }) => sn[e] !== void 0;
  await un.begin(
    o.filter(s),
    mn(
      o.filter((e) => !s(e)),
      i,
    ),
  );
  const { writes: c } = r,
    l = c === void 0 ? nn(r, a) : an(r, c, cn),
    u = { tiles: await on.run(r, un, l.put), output: l.end(), written: c !== void 0 },
    { buffer: d } = i;
  d.byteLength === 0
    ? t.postMessage({ kind: `result`, id: n, result: u }, [u.output])
    : t.postMessage({ kind: `result`, id: n, result: u, given: d }, [u.output, d]);
}
function mn(e, t) {
  let n = 0,
    r = /* @__PURE__ */ new Map();
  for (const i of e) {
    const e = i.bytes * i.count;
    r.set(i, t.subarray(n, n + e)), (n += e);
  }
  return r;
}
let hn = Promise.resolve();
function gn(e, t) {
  hn = hn.then(async () => {
    try {
      await pn(e, t);
    } catch (n) {
      t.postMessage(vn(e, n), []);
    }
  });
}
function _n(e) {
  const { message: t, code: n, errno: r, syscall: i } = e ?? {};
  return e instanceof Error && typeof n == `string` ? { message: `${t}`, code: n, errno: r, syscall: i } : void 0;
}
function vn(t, n) {
  const r = n instanceof $ ? n.cause : n;
  return {
    kind: `failure`,
    id: t.kind === `batch` ? t.id : void 0,
    task: n instanceof $ ? n.task : 0,
    writing: n instanceof $ && n.writing,
    message: dn(r),
    ...(r instanceof e ? { code: r.code, byteOffset: r.byteOffset, cause: _n(r.cause) } : {}),
  };
}
const yn = be(`node:worker_threads`)?.parentPort;
if (yn) yn.on(`message`, (e) => gn(e, yn));
else {
  const e = globalThis;
  e.addEventListener(`message`, (t) => gn(t.data, e));
}
