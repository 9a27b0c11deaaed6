package main

import (
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"

	"github.com/openai/openai-go/v3"
)

// media uses audio, images and embeddings. MODEL is the public name of a model of all kinds, FILE a file to upload.
// HEARD is what it contains, SOUND and PIXEL are answers.
func media(ctx context.Context) error {
	file, err := os.Open(os.Getenv("FILE"))
	if err != nil {
		return err
	}
	defer file.Close()
	return errors.Join(transcription(ctx, file), speech(ctx), images(ctx, file), embeddings(ctx))
}

func transcription(ctx context.Context, file *os.File) error {
	client, heard := forGateway(), os.Getenv("HEARD")
	got, err := client.Audio.Transcriptions.New(ctx, openai.AudioTranscriptionNewParams{
		File: file, Model: os.Getenv("MODEL"), ResponseFormat: openai.AudioResponseFormatJSON,
	})
	if err != nil || got.Text != heard || got.Usage.Seconds != 3 {
		return fmt.Errorf("transcription: %w, %+v", err, got)
	}
	if _, err := file.Seek(0, io.SeekStart); err != nil {
		return err
	}
	s := client.Audio.Transcriptions.NewStreaming(ctx,
		openai.AudioTranscriptionNewParams{File: file, Model: os.Getenv("MODEL")})
	defer s.Close()
	words := ""
	for s.Next() {
		words += s.Current().Delta
	}
	if s.Err() != nil || words != heard {
		return fmt.Errorf("a streamed transcription: %w, %q", s.Err(), words)
	}
	return nil
}

func speech(ctx context.Context) error {
	client := forGateway()
	got, err := client.Audio.Speech.New(ctx, openai.AudioSpeechNewParams{
		Input: "Grüße 🦙", Model: os.Getenv("MODEL"),
		Voice: openai.AudioSpeechNewParamsVoiceUnion{OfString: openai.String("af_heart")},
	})
	if err != nil {
		return fmt.Errorf("speech: %w", err)
	}
	defer got.Body.Close()
	if b, err := io.ReadAll(got.Body); err != nil || hex.EncodeToString(b) != os.Getenv("SOUND") {
		return fmt.Errorf("speech: %w, %q", err, b)
	}
	return nil
}

func images(ctx context.Context, file *os.File) error {
	client, pixel := forGateway(), os.Getenv("PIXEL")
	got, err := client.Images.Generate(ctx, openai.ImageGenerateParams{
		Model: os.Getenv("MODEL"), Prompt: "a pixel", ResponseFormat: openai.ImageGenerateParamsResponseFormatB64JSON,
	})
	if err != nil || len(got.Data) != 1 || got.Data[0].B64JSON != pixel {
		return fmt.Errorf("an image: %w, %+v", err, got)
	}
	if _, err := file.Seek(0, io.SeekStart); err != nil {
		return err
	}
	got, err = client.Images.Edit(ctx, openai.ImageEditParams{
		Image: openai.ImageEditParamsImageUnion{OfFileArray: []io.Reader{openai.File(file, `a "file".png`, "image/png")}},
		Model: os.Getenv("MODEL"), Prompt: "larger",
	})
	if err != nil || len(got.Data) != 1 || got.Data[0].B64JSON != pixel {
		return fmt.Errorf("an edited image: %w, %+v", err, got)
	}
	return nil
}

func embeddings(ctx context.Context) error {
	client, model := forGateway(), os.Getenv("MODEL")
	got, err := client.Embeddings.New(ctx, openai.EmbeddingNewParams{
		Model: model, Input: openai.EmbeddingNewParamsInputUnion{OfArrayOfStrings: []string{"a", "b"}},
	})
	if err != nil || got.Model != model || len(got.Data) != 1 || !slices.Equal(got.Data[0].Embedding, []float64{1, -2}) {
		return fmt.Errorf("embeddings: %w, %+v", err, got)
	}
	return nil
}
