package scripted

import (
	"encoding/base64"
	"encoding/binary"
	"fmt"
	"hash/fnv"
	"math"
	"net/http"
	"strings"
)

const (
	defaultDimensions = 256
	maxDimensions     = 4096
)

type embedding struct {
	Object    string `json:"object"`
	Index     int    `json:"index"`
	Embedding any    `json:"embedding"` // []float32, or base64 of its little-endian bytes
}

// embed serves POST /v1/embeddings. The vectors are word counts, so texts that share
// words are close to each other.
func (m *model) embed(w http.ResponseWriter, r *http.Request) error {
	var q struct {
		Input          texts  `json:"input"`
		Dimensions     int    `json:"dimensions"`
		EncodingFormat string `json:"encoding_format"`
	}
	q.Dimensions = defaultDimensions
	if err := decode(w, r, &q); err != nil {
		return err
	}
	if len(q.Input) == 0 {
		return invalid("input", "input must be a string or a list of strings.")
	}
	if q.Dimensions < 1 || q.Dimensions > maxDimensions {
		return invalid("dimensions", fmt.Sprintf("dimensions must be from 1 to %d.", maxDimensions))
	}
	data := make([]embedding, len(q.Input))
	used := 0
	for i, text := range q.Input {
		vector := wordCounts(text, q.Dimensions)
		data[i] = embedding{"embedding", i, vector}
		switch q.EncodingFormat {
		case "", "float":
		case "base64":
			raw, err := binary.Append(nil, binary.LittleEndian, vector)
			if err != nil {
				return fmt.Errorf("encoding a vector: %w", err)
			}
			data[i].Embedding = base64.StdEncoding.EncodeToString(raw)
		default:
			return invalid("encoding_format", "encoding_format must be float or base64.")
		}
		used += len(tokens(text))
	}
	return writeJSON(w, map[string]any{
		"object": "list", "data": data, "model": ModelID,
		"usage": map[string]int{"prompt_tokens": used, "total_tokens": used},
	})
}

// wordCounts hashes every word to a dimension, counts the words of each dimension,
// and scales the vector to length 1.
func wordCounts(text string, dimensions int) []float32 {
	vector := make([]float32, dimensions)
	for word := range strings.FieldsSeq(strings.ToLower(text)) {
		h := fnv.New64a()
		h.Write([]byte(word))
		vector[h.Sum64()%uint64(dimensions)]++
	}
	var sum float64
	for _, x := range vector {
		sum += float64(x) * float64(x)
	}
	if sum == 0 {
		vector[0], sum = 1, 1 // even a text without words has a vector of length 1
	}
	for i := range vector {
		vector[i] /= float32(math.Sqrt(sum))
	}
	return vector
}
