package tinymodel

import (
	"bufio"
	"encoding/binary"
	"io"
	"math"
)

// Value types and tensor types of GGUF version 3.
const (
	valueU32    = 4
	valueI32    = 5
	valueF32    = 6
	valueBool   = 7
	valueString = 8
	valueArray  = 9

	tensorF32 = 0
	tensorF16 = 1

	alignment = 32 // alignment of every tensor's data, in bytes
)

// A gguf collects the content of a file, little endian.
type gguf struct {
	kv      []byte
	nKV     uint64
	tensors []tensor
}

type tensor struct {
	name string
	data []float32
	dims []int // fastest dimension first
}

func appendString(b []byte, s string) []byte {
	return append(binary.LittleEndian.AppendUint64(b, uint64(len(s))), s...)
}

func (g *gguf) key(k string, kind uint32) {
	g.nKV++
	g.kv = binary.LittleEndian.AppendUint32(appendString(g.kv, k), kind)
}

func (g *gguf) u32(k string, x uint32) {
	g.key(k, valueU32)
	g.kv = binary.LittleEndian.AppendUint32(g.kv, x)
}

func (g *gguf) f32(k string, x float32) {
	g.key(k, valueF32)
	g.kv = binary.LittleEndian.AppendUint32(g.kv, math.Float32bits(x))
}

func (g *gguf) str(k, x string) {
	g.key(k, valueString)
	g.kv = appendString(g.kv, x)
}

func (g *gguf) boolean(k string, x bool) {
	g.key(k, valueBool)
	var b byte
	if x {
		b = 1
	}
	g.kv = append(g.kv, b)
}

func (g *gguf) strings(k string, xs []string) {
	g.key(k, valueArray)
	g.kv = binary.LittleEndian.AppendUint64(binary.LittleEndian.AppendUint32(g.kv, valueString), uint64(len(xs)))
	for _, x := range xs {
		g.kv = appendString(g.kv, x)
	}
}

func (g *gguf) i32s(k string, xs []int32) {
	g.key(k, valueArray)
	g.kv = binary.LittleEndian.AppendUint64(binary.LittleEndian.AppendUint32(g.kv, valueI32), uint64(len(xs)))
	for _, x := range xs {
		g.kv = binary.LittleEndian.AppendUint32(g.kv, uint32(x))
	}
}

// tensor adds a tensor, with the fastest dimension first. Matrices are stored as F16 and vectors as F32, as
// llama.cpp expects.
func (g *gguf) tensor(name string, data []float32, dims ...int) {
	g.tensors = append(g.tensors, tensor{name, data, dims})
}

// layout returns the type of a tensor's numbers, and their size in bytes.
func (t tensor) layout() (kind uint32, width int) {
	if len(t.dims) > 1 {
		return tensorF16, 2
	}
	return tensorF32, 4
}

// bytes returns the tensor's data, padded to the alignment.
func (t tensor) bytes() []byte {
	kind, width := t.layout()
	b := make([]byte, 0, len(t.data)*width+alignment)
	for _, x := range t.data {
		if kind == tensorF16 {
			b = binary.LittleEndian.AppendUint16(b, half(x))
		} else {
			b = binary.LittleEndian.AppendUint32(b, math.Float32bits(x))
		}
	}
	return pad(b)
}

func pad(b []byte) []byte {
	return append(b, make([]byte, (alignment-len(b)%alignment)%alignment)...)
}

// write writes the whole file.
func (g *gguf) write(dst io.Writer) error {
	w := bufio.NewWriterSize(dst, 1<<20)
	var infos []byte
	offset := 0
	for _, t := range g.tensors {
		kind, width := t.layout()
		infos = binary.LittleEndian.AppendUint32(appendString(infos, t.name), uint32(len(t.dims)))
		for _, d := range t.dims {
			infos = binary.LittleEndian.AppendUint64(infos, uint64(d))
		}
		infos = binary.LittleEndian.AppendUint32(infos, kind)
		infos = binary.LittleEndian.AppendUint64(infos, uint64(offset))
		offset = (offset + len(t.data)*width + alignment - 1) / alignment * alignment
	}
	head := []byte("GGUF")
	head = binary.LittleEndian.AppendUint32(head, 3)
	head = binary.LittleEndian.AppendUint64(head, uint64(len(g.tensors)))
	head = binary.LittleEndian.AppendUint64(head, g.nKV)
	head = pad(append(append(head, g.kv...), infos...))
	if _, err := w.Write(head); err != nil {
		return err
	}
	for _, t := range g.tensors {
		if _, err := w.Write(t.bytes()); err != nil {
			return err
		}
	}
	return w.Flush()
}

// half converts to IEEE 754 binary16, rounding half up in magnitude.
func half(f float32) uint16 {
	b := math.Float32bits(f)
	sign := uint16(b >> 16 & 0x8000)
	exponent := int(b>>23&0xff) - 127 + 15
	fraction := b & 0x7fffff
	switch {
	case exponent < -10:
		return sign
	case exponent <= 0:
		shift := uint(14 - exponent)
		return sign | uint16(((fraction|0x800000)+1<<(shift-1))>>shift)
	case exponent >= 31:
		return sign | 0x7c00
	}
	r := uint32(exponent)<<10 | fraction>>13
	if fraction&0x1000 != 0 {
		r++
	}
	return sign | uint16(r)
}
