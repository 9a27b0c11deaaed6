package tinymodel

import (
	"fmt"
	"io"
	"math"
	"math/rand"
	"strings"
)

const (
	width   = 256 // dimensions of an embedding
	heads   = 4
	headDim = width / heads
	baseFFN = 256

	// Meaning of the dimensions of an embedding.
	dimConst  = 8                      // dimensions 0..7 are 1 for every token
	maxRoutes = 24                     //
	dimIn     = dimConst               // which route token this is
	dimOut    = dimIn + maxRoutes      // which route token was seen, written by attention
	dimEnd    = dimOut + maxRoutes     // 1 for the last token of a script
	dimMid    = dimEnd + 1             // 1 for every token but a newline
	dimText   = dimMid + 1             // 1 for the last token of a script without a tool call
	dimCode   = dimText + 1            // the ±1 code starts here
	codeLen   = width - dimCode        //
	unitDims  = dimConst + 1 + codeLen // number of dimensions that are ±1 in an ordinary token

	gainNext  = 60.0 // logit of a successor
	gainRoute = 40.0 // logit of a route's first token
)

// Options change the size of the model, but not its replies.
type Options struct {
	Layers  int // default 2; more make the model slower
	FFN     int // feed-forward width, default 256; more makes the model slower
	Context int // context length written into the file, default 32768 tokens
}

// Write writes the model. The same options give the same bytes.
func Write(w io.Writer, o Options) error {
	if o.Layers == 0 {
		o.Layers = 2
	}
	if o.FFN == 0 {
		o.FFN = baseFFN
	}
	if o.Context == 0 {
		o.Context = 32768
	}
	m := newModel()
	g := &gguf{}
	m.metadata(g, o)
	g.tensor("token_embd.weight", m.embeddings, width, len(m.text))
	g.tensor("output.weight", m.head(), width, len(m.text))
	g.tensor("output_norm.weight", ones(width), width)
	for layer := range o.Layers {
		m.layer(g, layer, o.FFN)
	}
	return g.write(w)
}

// A transition makes a token a possible successor of another one.
type transition struct {
	to   int
	gain float64 // logit
}

// A model is the vocabulary and the successor table before they become weights.
type model struct {
	vocab
	scripts    []script
	routes     []int // control token of each script
	first      []int // first token of each script
	next       map[int][]transition
	ends       []int // last tokens of scripts
	textEnds   []int // last tokens of scripts that call no tool
	bias       map[int]float64
	endText    int
	eos        int
	embeddings []float32 // len(text) × width
	rms        float64   // root mean square of an ordinary embedding, which the norm divides by
}

func newModel() *model {
	m := &model{
		vocab:   vocab{index: map[string]int{}},
		scripts: scripts(),
		next:    map[int][]transition{},
		rms:     math.Sqrt(float64(unitDims) / width),
	}
	for b := range 256 {
		m.add(string([]byte{byte(b)}), kindNormal)
	}
	m.endText = m.add("<|endoftext|>", kindControl)
	m.add("<|im_start|>", kindControl)
	m.eos = m.add("<|im_end|>", kindControl)
	for _, s := range specials() {
		m.add(s, kindUser)
	}
	if len(m.scripts) > maxRoutes {
		panic("there are more scripts than route dimensions")
	}
	for _, s := range m.scripts {
		m.routes = append(m.routes, m.add("<|route:"+s.name+"|>", kindControl))
	}
	m.train(corpus, 600)
	m.learn()
	m.grammar()
	for len(m.text)%64 != 0 {
		m.add(fmt.Sprintf("<|unused_%d|>", len(m.text)), kindControl)
	}
	m.embed()
	return m
}

// learn cuts the scripts and fills the successor table.
func (m *model) learn() {
	c := &cutter{vocab: &m.vocab, used: map[int]bool{}}
	for _, s := range m.scripts {
		ids, ok := c.cut(s.text)
		if !ok {
			panic("no unused tokens left for script " + s.name)
		}
		if len(ids) == 0 {
			m.first = append(m.first, m.eos)
			continue
		}
		m.first = append(m.first, ids[0])
		for k := range len(ids) - 1 {
			m.follow(ids[k], ids[k+1], gainNext)
		}
		last := ids[len(ids)-1]
		if s.loop {
			m.follow(last, ids[0], gainNext)
			continue
		}
		m.ends = append(m.ends, last)
		if !strings.Contains(s.text, "<tool_call>") {
			m.textEnds = append(m.textEnds, last)
		}
	}
}

func (m *model) follow(token, next int, gain float64) {
	m.next[token] = append(m.next[token], transition{next, gain})
}

// grammar adds transitions for output that is forced by a grammar: strings have one word, objects have a key,
// and a closing bracket is more likely than another element.
func (m *model) grammar() {
	at := func(s string) int { return m.index[s] }
	sample := m.add("sample", kindNormal)
	m.follow(at(`"`), sample, gainNext)
	m.follow(sample, at(`"`), gainNext)
	m.follow(at("{"), at(`"`), gainNext/2)
	m.follow(at("}"), at("\n"), gainNext/2)
	m.follow(at("\n"), at("</tool_call>"), gainNext/3)
	// Without a route token, in an unusual list of messages, the reply is answer.
	m.follow(at("\n"), m.first[0], gainNext/2)
	m.bias = map[int]float64{
		at(`"`): 20, at("}"): 14, at("]"): 14, at(","): 12, at(":"): 11, at("7"): 10, at("t"): 9, m.eos: 8,
	}
	for id, s := range m.text {
		if m.kind[id] == kindNormal && strings.TrimSpace(s) == "" {
			m.bias[id] = -12
		}
	}
}

// embed fills the embedding matrix.
func (m *model) embed() {
	rng := rand.New(rand.NewSource(1))
	m.embeddings = make([]float32, len(m.text)*width)
	for t := range m.text {
		row := m.embeddings[t*width:]
		for d := range dimConst {
			row[d] = 1
		}
		row[dimMid] = 1
		for d := dimCode; d < width; d++ {
			row[d] = float32(2*rng.Intn(2) - 1)
		}
	}
	for i, t := range m.routes {
		m.embeddings[t*width+dimIn+i] = 1
	}
	// Under a grammar, text ends with a plain "}" or ">". If the grammar allows it, stop there instead of
	// starting the next call.
	for _, t := range append(m.ends, m.index["}"], m.index[">"]) {
		m.embeddings[t*width+dimEnd] = 1
	}
	for _, t := range m.textEnds {
		m.embeddings[t*width+dimText] = 1
	}
	m.embeddings[m.index["\n"]*width+dimMid] = 0
}

// head returns the output matrix. Row j is the sum of the codes of the tokens that j follows.
func (m *model) head() []float32 {
	head := make([]float32, len(m.text)*width)
	for t := range m.text {
		for _, e := range m.next[t] {
			for d := dimCode; d < width; d++ {
				head[e.to*width+d] += float32(e.gain*m.rms/codeLen) * m.embeddings[t*width+d]
			}
		}
	}
	head[m.eos*width+dimEnd] = float32(gainNext * m.rms)
	// If the server does not allow the end yet (tool_choice "required"), the model calls a tool.
	head[m.index["<tool_call>"]*width+dimText] = float32(2 * gainRoute * m.rms)
	for t, b := range m.bias {
		for d := range dimConst {
			head[t*width+d] += float32(b * m.rms / dimConst)
		}
	}
	for i, t := range m.first {
		head[t*width+dimOut+i] += float32(gainRoute * m.rms)
		if t != m.eos {
			head[t*width+dimMid] -= float32(gainRoute * m.rms) // only at the start
		}
	}
	return head
}

// layer writes one transformer block. The first block's first head carries the
// route forward; all other weights are zero.
func (m *model) layer(g *gguf, n, ffn int) {
	square := func() []float32 { return make([]float32, width*width) }
	q, k, v, o := square(), square(), square(), square()
	if n == 0 {
		slot := headDim - 2 // the pair with the lowest rotary frequency
		for d := range dimConst {
			q[slot*width+d] = float32(8 * m.rms / dimConst)
		}
		for i := range m.scripts {
			k[slot*width+dimIn+i] = float32(30 * m.rms)
			v[i*width+dimIn+i] = float32(m.rms)
			o[(dimOut+i)*width+i] = 1
		}
	}
	p := fmt.Sprintf("blk.%d.", n)
	g.tensor(p+"attn_norm.weight", ones(width), width)
	g.tensor(p+"attn_q.weight", q, width, width)
	g.tensor(p+"attn_k.weight", k, width, width)
	g.tensor(p+"attn_v.weight", v, width, width)
	g.tensor(p+"attn_output.weight", o, width, width)
	g.tensor(p+"ffn_norm.weight", ones(width), width)
	g.tensor(p+"ffn_gate.weight", make([]float32, width*ffn), width, ffn)
	g.tensor(p+"ffn_up.weight", make([]float32, width*ffn), width, ffn)
	g.tensor(p+"ffn_down.weight", make([]float32, width*ffn), ffn, width)
}

func (m *model) metadata(g *gguf, o Options) {
	g.str("general.architecture", "llama")
	g.str("general.name", "tinyscript")
	g.u32("general.file_type", 1)
	g.u32("llama.block_count", uint32(o.Layers))
	g.u32("llama.context_length", uint32(o.Context))
	g.u32("llama.embedding_length", width)
	g.u32("llama.feed_forward_length", uint32(o.FFN))
	g.u32("llama.attention.head_count", heads)
	g.u32("llama.attention.head_count_kv", heads)
	g.f32("llama.attention.layer_norm_rms_epsilon", 1e-6)
	g.u32("llama.rope.dimension_count", headDim)
	g.f32("llama.rope.freq_base", 1e9)
	g.u32("llama.vocab_size", uint32(len(m.text)))
	g.str("tokenizer.ggml.model", "gpt2")
	g.str("tokenizer.ggml.pre", "qwen2")
	tokens := make([]string, len(m.text))
	for i, s := range m.text {
		tokens[i] = s
		if m.kind[i] == kindNormal {
			tokens[i] = encode(s)
		}
	}
	g.strings("tokenizer.ggml.tokens", tokens)
	g.i32s("tokenizer.ggml.token_type", m.kind)
	g.strings("tokenizer.ggml.merges", m.merge)
	g.u32("tokenizer.ggml.eos_token_id", uint32(m.eos))
	g.u32("tokenizer.ggml.padding_token_id", uint32(m.endText))
	g.u32("tokenizer.ggml.bos_token_id", uint32(m.endText))
	g.boolean("tokenizer.ggml.add_bos_token", false)
	var names []string
	for _, s := range m.scripts {
		names = append(names, "'"+s.name+"'")
	}
	g.str("tokenizer.chat_template", strings.Replace(chatTemplate, "ROUTES", strings.Join(names, ", "), 1))
}

func ones(n int) []float32 {
	s := make([]float32, n)
	for i := range s {
		s[i] = 1
	}
	return s
}
