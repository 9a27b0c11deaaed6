package manage

import (
	"context"
	"encoding/csv"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"reflect"
	"strings"
	"time"
)

// maxRows bounds the rows of a table, give or take a page.
const maxRows = 100_000

// tableAction is an operation that answers with what find returns or, with "?format=csv", with a file of all records:
// next returns those of an answer and, if there is another page, turns the request into the one for that.
func tableAction[Q, A, T any](name string, find func(*Service, context.Context, Q) (A, error),
	next func(*Q, A) (records []T, more bool),
) action {
	a := call(ok, func(s *Service, ctx context.Context, q Q) (any, error) {
		format := reflect.ValueOf(q).FieldByName("Format").String()
		if format != "" && format != "json" && format != "csv" {
			return nil, badRequest("query parameter %q is %.40q; it must be json or csv", "format", format)
		}
		answer, err := find(s, ctx, q)
		if err != nil || format != "csv" {
			return answer, err
		}
		return download{"text/csv; charset=utf-8", name + ".csv", func(w io.Writer) error {
			out := csv.NewWriter(w) // keeps its first error
			header, columns := columnsOf(reflect.TypeFor[T]())
			_ = out.Write(header)
			for rows := 0; err == nil; answer, err = find(s, ctx, q) {
				records, more := next(&q, answer)
				for _, record := range records {
					for i, column := range columns {
						header[i] = cell(reflect.ValueOf(record).FieldByIndex(column))
					}
					_ = out.Write(header)
				}
				if rows += len(records); !more || rows >= maxRows {
					break
				}
			}
			out.Flush()
			return errors.Join(err, out.Error())
		}}, nil
	})
	a.Answer = reflect.TypeFor[A]()
	return a
}

// whole is for answers that have all records.
func whole[Q, T any](_ *Q, all []T) ([]T, bool) { return all, false }

// columnsOf returns the names and the indexes of the fields of a record, as in JSON, but the histograms.
func columnsOf(record reflect.Type) (names []string, indexes [][]int) {
	for _, f := range reflect.VisibleFields(record) {
		if name, _, _ := strings.Cut(f.Tag.Get("json"), ","); name != "" && name != "-" && f.Type.Kind() != reflect.Array {
			names, indexes = append(names, name), append(indexes, f.Index)
		}
	}
	return names, indexes
}

// cell returns a value as a cell that no spreadsheet takes for a formula.
func cell(v reflect.Value) string {
	text := fmt.Sprint(v.Interface())
	switch value := v.Interface().(type) {
	case time.Time:
		return value.Format(time.RFC3339Nano)
	case []string, map[string]string:
		list, _ := json.Marshal(value) // of strings
		return strings.TrimPrefix(string(list), "null")
	case string:
		if text != "" && strings.ContainsRune("=+-@\t\r", rune(text[0])) {
			return "'" + text
		}
	}
	return text
}
